"""Image descriptions in the text of their page."""

from services.embeddings.domain.document import Page, PageImage
from services.embeddings.domain.enrichment import enrich

IMAGE = PageImage("d1", "image/png", b"", 1, 1)


def test_each_description_is_a_line_after_the_text_in_order():
    page = Page(3, "El compresor.", (IMAGE, IMAGE))
    assert enrich(page, ["esquema", "foto"]).text == "El compresor.\n[Imagen: esquema]\n[Imagen: foto]"


def test_an_empty_description_leaves_nothing():
    assert enrich(Page(1, "Texto.", (IMAGE, IMAGE)), ["", " \n "]).text == "Texto."


def test_a_page_without_text_is_its_descriptions():
    assert enrich(Page(1, "", (IMAGE,)), ["INFORME 2024"]).text == "[Imagen: INFORME 2024]"


def test_a_page_without_images_stays_as_it_is():
    page = Page(None, "Texto.")
    assert enrich(page, []) == page


def test_number_and_images_stay():
    page = enrich(Page(7, "Texto.", (IMAGE,)), ["esquema"])
    assert (page.number, page.images) == (7, (IMAGE,))


def test_a_description_of_several_lines_becomes_one_storable_line():
    assert (
        enrich(Page(1, "", (IMAGE,)), ["P1:\x00 12 bar\r\n\n  P2: 8 bar\ud800"]).text
        == "[Imagen: P1: 12 bar P2: 8 bar]"
    )
