"""Image descriptions in the text of their page."""

import re
from dataclasses import replace

import pytest

from services.embeddings.domain.document import Page, PageFault, PageImage, PageKind, PageLayout, Rect, Span
from services.embeddings.domain.enrichment import ImageDescription, enrich, enriched, kind_of
from services.embeddings.domain.placed_text import PlacedText
from services.embeddings.domain.running_lines import RunningLines

IMAGE = PageImage("d1", "image/png", b"", 1, 1)


def described(*texts: str) -> list[ImageDescription]:
    return [ImageDescription(text) for text in texts]


def test_each_description_is_a_line_after_the_text_in_order():
    page = Page(3, "El compresor.", (IMAGE, IMAGE))
    assert enrich(page, described("esquema", "foto")).text == "El compresor.\n[Imagen: esquema]\n[Imagen: foto]"


def test_an_empty_description_leaves_nothing():
    assert enrich(Page(1, "Texto.", (IMAGE, IMAGE)), described("", " \n ")).text == "Texto."


def test_a_page_without_text_is_its_descriptions():
    assert enrich(Page(1, "", (IMAGE,)), described("INFORME 2024")).text == "[Imagen: INFORME 2024]"


def test_a_page_without_images_stays_as_it_is():
    page = Page(None, "Texto.")
    assert enrich(page, []) == page


def test_number_and_images_stay():
    page = enrich(Page(7, "Texto.", (IMAGE,)), described("esquema"))
    assert (page.number, page.images) == (7, (IMAGE,))


def test_a_description_of_several_lines_becomes_one_storable_line():
    assert (
        enrich(Page(1, "", (IMAGE,)), described("P1:\x00 12 bar\r\n\n  P2: 8 bar\ud800")).text
        == "[Imagen: P1: 12 bar P2: 8 bar]"
    )


def test_a_description_stands_where_its_lines_stand_in_the_image_or_all_over_it():
    image = PageImage("d1", "image/png", b"", 100, 50)
    layout = PageLayout(6000, 8000, "pt", (Span(0, 6, Rect(1, 2, 3, 4)),), (Rect(1000, 2000, 2000, 2500),) * 2)
    lines = ImageDescription(
        "uno\ndos", spans=(Span(0, 3, Rect(100, 0, 500, 250)), Span(4, 7, Rect(0, 250, 1000, 500)))
    )
    page = enrich(Page(1, "Texto.", (image, image), layout=layout), [lines, ImageDescription("tres")])
    assert page.layout is not None
    assert [(page.text[start:end], tuple(rect)) for start, end, rect in page.layout.spans] == [
        ("Texto.", (1, 2, 3, 4)),
        ("uno", (1100, 2000, 1500, 2250)),
        ("dos", (1000, 2250, 2000, 2500)),
        ("tres", (1000, 2000, 2000, 2500)),
    ]


def test_a_word_that_the_image_of_the_whole_page_says_is_not_said_twice():
    image = PageImage("d1", "image/png", b"", 100, 50)
    words = "Bomba B-7\nfig. 12"
    spans = (Span(0, 9, Rect(1, 2, 3, 4)), Span(10, 17, Rect(5, 6, 7, 8)))
    layout = PageLayout(6000, 8000, "pt", spans, (Rect(0, 0, 6000, 8000),))
    page = enrich(Page(1, words, (image,), layout=layout), described("BOMBA B-7: 3 bar. Fig 2."))
    assert page.layout is not None
    assert page.text == "12\n[Imagen: BOMBA B-7: 3 bar. Fig 2.]"
    assert [(page.text[start:end], tuple(rect)) for start, end, rect in page.layout.spans] == [
        ("12", (5, 6, 7, 8)),
        ("BOMBA B-7: 3 bar. Fig 2.", (0, 0, 6000, 8000)),
    ]
    beside = replace(layout, images=(Rect(0, 0, 100, 100),))
    assert enrich(Page(1, words, (image,), layout=beside), described("Bomba")).text == f"{words}\n[Imagen: Bomba]"
    assert enrich(Page(1, words, (image,), layout=layout), described("")).text == words


def scan(number: int, text: str) -> tuple[Page, ImageDescription]:
    image = PageImage(f"d{number}", "image/png", b"", 100, 50)
    layout = PageLayout(1000, 500, "px", (), (Rect(0, 0, 1000, 500),))
    spans = (Span(*line.span(), Rect(0, 0, 9, 9)) for line in re.finditer(r".+", text))
    return Page(number, "", (image,), layout=layout), ImageDescription(text, spans=tuple(spans))


def test_headers_and_footers_of_scanned_pages_are_left_out_after_the_third():
    names = ["Uno", "Dos", "Tres", "Cuatro", "Cinco"]
    scans = [scan(n, f"Manual IGE12\n{name} se revisa.\nPágina {n} de 5") for n, name in enumerate(names, start=1)]
    pages = list(enriched([page for page, _ in scans], {f"d{page.number}": found for page, found in scans}))
    assert [page.text for page in pages] == [
        *(f"[Imagen: Manual IGE12 {name} se revisa. Página {n} de 5]" for n, name in enumerate(names[:3], start=1)),
        *(f"[Imagen: {name} se revisa.]" for name in names[3:]),
    ]
    assert pages[3].layout is not None
    assert [pages[3].text[start:end] for start, end, _ in pages[3].layout.spans] == ["Cuatro se revisa."]


def test_images_on_pages_that_say_the_same_are_content():
    pages = [Page(number, "Texto.", (IMAGE,)) for number in range(1, 6)]
    shown = [page.text for page in enriched(pages, {"d1": ImageDescription("Logo\nACME")})]
    assert shown == ["Texto.\n[Imagen: Logo ACME]"] * 5


FAILED = ImageDescription("", "IMAGE_UNREADABLE: the image cannot be read")


@pytest.mark.parametrize(
    ("page", "descriptions", "kind"),
    [
        (Page(1, "La presión máxima del compresor."), described("esquema"), PageKind.TEXT),
        (Page(1, "12"), described("INFORME 2024"), PageKind.OCR),
        (Page(1, ""), described("INFORME 2024"), PageKind.OCR),
        (Page(1, "12"), [FAILED], PageKind.TEXT),
        (Page(1, ""), [FAILED], PageKind.UNREADABLE),
        (Page(1, " \n"), [], PageKind.EMPTY),
        (Page(1, " \n"), described(""), PageKind.UNREADABLE),
        (Page(1, "", fault=PageFault.GARBLED), described("INFORME 2024"), PageKind.GARBLED),
        (Page(1, "", fault=PageFault.UNREADABLE), [], PageKind.UNREADABLE),
    ],
)
def test_a_page_is_what_its_text_comes_from(page, descriptions, kind):
    assert kind_of(page, descriptions, PageKind.OCR) is kind


def test_a_line_in_the_middle_of_every_page_is_content() -> None:
    running = RunningLines()
    for index in range(8):
        lines = {"Acme Laboratory": 40, f"Patient {index}": 300, "Result: NEGATIVE": 420, "Doctor Ruiz": 540}
        parts = [
            PlacedText(line + "\n", (Span(0, len(line), Rect(10, top, 90, top + 10)),)) for line, top in lines.items()
        ]
        left = running.left_out_of(PlacedText.joined(parts), index, 842).text
        assert ("Acme Laboratory" in left) == (index < 3)
        assert "Result: NEGATIVE" in left
        assert "Doctor Ruiz" in left
