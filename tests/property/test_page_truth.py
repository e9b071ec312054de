"""What a chunk says of its pages is true: random documents whose every word names the page that it stands on."""

import re
import tempfile
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.embeddings.adapters.chunking import StructuralChunker
from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.registry import read_document
from services.embeddings.domain.chunk import DocumentText
from services.embeddings.domain.document import Page
from tests.support.documents import A4, FONT_SIZE, LEADING, MARGIN, Line, lines_of, pdf, pymupdf

COLUMN = 40
WORDS = ["presión", "Válvula", "el", "de", "IGE12-3", "según", "niño", "«caudal»", "1,5", "¿qué?"]


@dataclass(frozen=True)
class LaidOut:
    """A document as bytes, the words of each page in the order in which a person reads them, and its lines."""

    words: list[list[str]]
    lines: list[list[Line]]
    data: bytes = field(repr=False)


@st.composite
def laid_out_documents(draw) -> LaidOut:
    """Pages turned either way, in one or two columns, painted in order or not, with headers and footers."""
    rotation = draw(st.sampled_from([0, 90, 180, 270]))
    width, height = A4
    pages, words = [], []
    for number in range(1, draw(st.integers(1, 3)) + 1):  # a header is left out from the fourth page on
        numbers = count()

        def paragraph(sizes, number=number, numbers=numbers) -> str:
            return " ".join(f"{draw(st.sampled_from(WORDS))}p{number}w{next(numbers)}" for _ in range(draw(sizes)))

        if draw(st.booleans()):
            texts = [paragraph(st.integers(1, 60)) for _ in range(draw(st.integers(1, 4)))]
            columns = [_flow(texts, MARGIN, 80)]
        else:
            columns = [_flow([paragraph(st.integers(15, 80))], x, COLUMN) for x in (MARGIN, width / 2 + 10)]
        columns = [[line for line in column if line.y < height - 80] for column in columns]
        header, footer = f"Manualp{number}h", f"Páginap{number}f"
        words.append([header, *(word for column in columns for line in column for word in line.text.split()), footer])
        body = [line for column in columns for line in column]
        if draw(st.booleans()):
            body.sort(key=lambda line: line.y)  # line by line across the columns, as some programs paint
        painted = [*body, Line(MARGIN, 40, header), Line(MARGIN, height - 30, footer)]
        pages.append(painted[::-1] if draw(st.booleans()) else painted)
    return LaidOut(words, pages, pdf(pages, rotation=rotation))


def _flow(texts: list[str], x: float, characters: int) -> list[Line]:
    lines: list[Line] = []
    y = 80.0
    for text in texts:
        lines += lines_of(text, x=x, y=y, characters=characters)
        y = lines[-1].y + 2 * LEADING
    return lines


READERS = ["pymupdf", "pdfium"]


def read(data: bytes, reader: str) -> list[Page]:
    with tempfile.NamedTemporaryFile(suffix=".pdf") as file:
        file.write(data)
        file.flush()
        _, pages = read_document(
            Path(file.name), name="a.pdf", media_type="", limits=ExtractionLimits(), options=frozenset([reader])
        )
        return list(pages)


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=40)
@given(laid_out_documents())
def test_every_word_is_in_reading_order_in_the_box_that_its_page_says_and_on_the_pages_that_its_chunk_says(
    reader, document
):
    pages = read(document.data, reader)
    assert [page.text.split() for page in pages] == document.words
    for page, lines in zip(pages, document.lines, strict=True):
        assert page.layout is not None
        assert (page.layout.width, page.layout.height) == (10 * A4[0], 10 * A4[1])
        offsets = {match.group(): match.start() for match in re.finditer(r"\S+", page.text)}
        for line in lines:
            for match in re.finditer(r"\S+", line.text):
                left, right = (
                    line.x + pymupdf.get_text_length(line.text[:at], fontsize=FONT_SIZE) for at in match.span()
                )
                at = offsets[match.group()]
                (rect,) = [rect for start, end, rect in page.layout.spans if start <= at < end]
                assert rect.x0 - 10 <= 10 * left < 10 * right <= rect.x1 + 10, match
                assert rect.y0 <= 10 * (line.y - FONT_SIZE / 2) < 10 * line.y <= rect.y1, match
                assert rect.y1 - rect.y0 < 20 * LEADING
    page_of = {word: number for number, words in enumerate(document.words, start=1) for word in words}
    chunks = StructuralChunker(200, 40).chunk(DocumentText.join(pages))
    for chunk in chunks:
        found = [page_of[word] for word in chunk.text.split() if word in page_of]
        assert found, chunk
        assert (min(found), max(found)) == (chunk.page_from, chunk.page_to)
    assert {word for chunk in chunks for word in chunk.text.split()} >= page_of.keys()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_a_word_parted_at_the_end_of_a_line_is_whole(reader, rotation):
    lines = [
        Line(50, 60, "La presión del com-"),
        Line(50, 74, "presor y la válvu-"),
        Line(50, 88, "la IGE12-"),
        Line(50, 102, "3 bajan"),
    ]
    (page,) = read(pdf([lines], rotation=rotation), reader)
    assert page.text == "La presión del compresor y la válvula IGE12-\n3 bajan"


@pytest.mark.parametrize("reader", READERS)
def test_a_sentence_over_the_border_of_two_pages_is_in_one_chunk_that_names_both(reader):
    (chunk,) = StructuralChunker().chunk(
        DocumentText.join(
            read(pdf([lines_of("La válvula se abre cuando"), lines_of("la presión pasa de 10 bar.")]), reader)
        )
    )
    assert chunk.text == "La válvula se abre cuando\n\nla presión pasa de 10 bar."
    assert (chunk.page_from, chunk.page_to) == (1, 2)


@pytest.mark.parametrize("reader", READERS)
def test_a_word_over_the_border_of_two_pages_is_whole_and_on_both(reader):
    pages = read(pdf([lines_of("La presión del com-"), lines_of("presor baja.")]), reader)
    document = DocumentText.join(pages)
    (chunk,) = StructuralChunker().chunk(document)
    assert chunk.text == "La presión del compresor baja."
    assert (chunk.page_from, chunk.page_to) == (1, 2)
    assert [document.text[span.start : span.end] for spans in document.spans for span in spans] == [
        "La presión del com",
        "presor baja.",
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [("el estado-de-", "la-cuestión"), ("IGE12-", "tres"), ("la A-", "b"), ("fin -", "uno"), ("De-", "Él")],
)
def test_a_hyphen_that_parts_no_word_stays_at_the_border(first, second):
    assert DocumentText.join([Page(1, first), Page(2, second)]).text == f"{first}\n\n{second}"


@pytest.mark.parametrize("reader", READERS)
def test_a_page_without_text_keeps_its_number(reader):
    pages = read(pdf([lines_of("uno"), [], lines_of("tres")]), reader)
    assert [(page.number, page.text) for page in pages] == [(1, "uno"), (2, ""), (3, "tres")]
    (chunk,) = StructuralChunker().chunk(DocumentText.join(pages))
    assert (chunk.page_from, chunk.page_to) == (1, 3)


@pytest.mark.parametrize("reader", READERS)
def test_a_table_keeps_its_rows_together(reader):
    cells = [["Válvula", "Presión", "Caudal"], ["V-101", "12 bar", "30 l/s"], ["V-102", "8 bar", "12 l/s"]]
    lines = [Line(50 + 150 * c, 60 + 16 * r, text) for c in range(3) for r, text in enumerate(row[c] for row in cells)]
    (page,) = read(pdf([lines]), reader)
    assert page.text.split("\n") == ["\t".join(row) for row in cells]


@pytest.mark.parametrize("reader", READERS)
def test_two_columns_beside_a_table_are_read_one_after_another(reader):
    first, second = (
        _flow([f"{word} presión del compresor baja según " * 9] * 3, x, 34) for word, x in (("uno", 30), ("dos", 220))
    )
    rows = [["", "2024", "2025"], ["EBITA", "8.8", "10.3"], ["EPS", "0.43", "0.63"], ["P/B", "1.5", "1.5"]]
    table = [Line(420 + 60 * c, 95 + 17 * r, cell) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell]
    (page,) = read(pdf([[*table, *first, *second]]), reader)
    assert page.text.split() == [word for line in [*first, *second, *table] for word in line.text.split()]
