"""What holds for the chunks of any text."""

from itertools import pairwise

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from services.chassis.kernel.errors import ConfigurationError
from services.chassis.kernel.text import sanitise
from services.embeddings.adapters.chunking import StructuralChunker
from services.embeddings.domain.chunk import Chunk, DocumentText
from services.embeddings.domain.document import Page

# Prose, tables, long tokens, scripts without spaces, and characters that do not stand alone.
PIECES = [
    "presión ",
    "El compresor IGE12-3 no arranca. ",
    "a",
    " ",
    "\n",
    "\n\n",
    "\t| 3,5 | bar |\n",
    "https://example.org/" + "x" * 70,
    "\n\n4.2 Presión máxima de trabajo\n\n",
    "\n## Caudal\n",
    "\nV-101 | " + "presión " * 6 + "\n",
    "漢字仮名",
    "ภาษาไทย",
    "क्षत्रिय",
    "e\u0301",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "🇪🇸",
    "👍🏽",
    "각",
    "مرحبا",
    "\u00a0",
    "\u2028",
]
texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=120).map("".join),
    st.lists(st.tuples(st.sampled_from(PIECES), st.integers(1, 60)), max_size=8).map(
        lambda runs: "".join(piece * count for piece, count in runs)
    ),
    st.text(max_size=600),
).map(sanitise)
documents = st.lists(texts, min_size=1, max_size=5).map(
    lambda pages: DocumentText.join([Page(number, text) for number, text in enumerate(pages, start=1)])
)
limits = st.sampled_from([(60, 0), (80, 20), (200, 50), (1000, 150)])


def chunks_of(document: DocumentText, limits: tuple[int, int]) -> list[Chunk]:
    return StructuralChunker(*limits).chunk(document)


@given(documents, limits)
def test_every_character_that_is_not_white_space_is_in_a_chunk(document, limits):
    covered = set()
    for chunk in chunks_of(document, limits):
        covered.update(range(chunk.char_start, chunk.char_end))
    assert all(character.isspace() for at, character in enumerate(document.text) if at not in covered)


@given(documents, limits)
def test_by_line_no_chunk_has_anything_of_two_lines(document, limits):
    chunks = StructuralChunker(*limits).chunk(document, by_line=True)
    assert [len(chunk.text.splitlines()) for chunk in chunks] == [1] * len(chunks)
    lines = [line for line in document.text.splitlines() if line.strip()]
    if all(len(line.strip()) <= limits[0] - limits[1] for line in lines):
        assert [chunk.text for chunk in chunks] == [line.strip() for line in lines]
    assert [chunk.position for chunk in chunks] == list(range(len(chunks)))


@given(documents, limits)
def test_no_chunk_is_empty_or_longer_than_the_limit(document, limits):
    assert all(1 <= len(chunk.text) <= limits[0] for chunk in chunks_of(document, limits))


@given(documents, limits)
def test_a_chunk_is_the_text_between_its_offsets(document, limits):
    chunks = chunks_of(document, limits)
    assert [chunk.position for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        assert chunk.text == document.text[chunk.char_start : chunk.char_end]
        assert chunk.text == chunk.text.strip()


@given(documents, limits)
def test_chunks_go_forward_and_each_begins_within_the_overlap(document, limits):
    for one, next_one in pairwise(chunks_of(document, limits)):
        assert one.char_start < next_one.char_start or one.char_end < next_one.char_end
        assert one.char_end - next_one.char_start <= limits[1]


@given(st.lists(st.sampled_from(["presión ", "IGE12-3, ", "baja. ", "漢字", "e\u0301", "x"]), min_size=2, max_size=12))
def test_running_text_overlaps_by_at_least_half_of_what_is_asked(pieces):
    document = DocumentText.join([Page(1, "".join(pieces) * 60)])
    chunks = chunks_of(document, (200, 60))
    for before, one, next_one in zip(chunks, chunks[1:], chunks[2:], strict=False):
        body = one.char_end - before.char_end
        assert one.char_end - next_one.char_start >= min(30, body) - 2


@given(documents, limits)
def test_pages_are_those_of_the_characters(document, limits):
    bounds = [*document.starts, len(document.text)]
    page_of = {
        at: number
        for number, (start, end) in zip(document.numbers, pairwise(bounds), strict=True)
        for at in range(start, end)
    }
    for chunk in chunks_of(document, limits):
        assert chunk.page_from == page_of[chunk.char_start]
        assert chunk.page_to == page_of[chunk.char_end - 1]


@given(documents, limits)
@example(DocumentText.join([Page(1, "e" + "\u0301" * 300)]), (80, 20))
def test_no_grapheme_is_split_unless_it_is_longer_than_a_body(document, limits):
    inside = set()
    for match in regex.finditer(r"\X", document.text):
        # White space is left out at the ends of a chunk, whatever stands on it.
        if match.end() - match.start() <= limits[0] - limits[1] and not match.group()[0].isspace():
            inside.update(range(match.start() + 1, match.end()))
    for chunk in chunks_of(document, limits):
        assert chunk.char_start not in inside
        assert chunk.char_end not in inside


@given(documents, limits)
def test_the_same_text_gives_the_same_chunks(document, limits):
    assert chunks_of(document, limits) == chunks_of(document, limits)


def test_a_grapheme_longer_than_a_body_is_cut_hard_and_stays_within_the_limit():
    document = DocumentText.join([Page(1, "e" + "\u0301" * 500)])
    chunks = chunks_of(document, (80, 20))
    assert "".join(chunk.text for chunk in chunks) == document.text
    assert all(len(chunk.text) <= 80 for chunk in chunks)


def test_a_short_text_is_one_chunk():
    document = DocumentText.join([Page(1, "Uno."), Page(2, ""), Page(3, "Tres.")])
    (chunk,) = chunks_of(document, (1000, 150))
    assert (chunk.text, chunk.page_from, chunk.page_to) == ("Uno.\n\nTres.", 1, 3)


def test_an_empty_document_has_no_chunks():
    assert chunks_of(DocumentText.join([Page(1, " \n ")]), (1000, 150)) == []


def test_paragraphs_are_kept_whole_where_they_fit():
    paragraphs = [f"Párrafo {n}. " + "La válvula regula el caudal. " * 12 for n in range(6)]
    document = DocumentText.join([Page(1, "\n\n".join(paragraphs))])
    chunks = chunks_of(document, (1000, 150))
    for paragraph in paragraphs:
        assert any(paragraph.strip() in chunk.text for chunk in chunks)


def test_a_heading_is_in_one_chunk_with_the_start_of_what_it_heads():
    heading = "4.2 Presión máxima de trabajo"
    before = "La válvula regula el caudal. " * 27
    after = "La presión no pasa de diez bar. " * 27
    document = DocumentText.join([Page(1, f"{before}\n\n{heading}\n\n{after}")])
    chunks = chunks_of(document, (1000, 150))
    assert any(f"{heading}\n\nLa presión no pasa de diez bar." in chunk.text for chunk in chunks)


def test_a_table_row_that_fits_is_not_cut():
    rows = [f"| {n:03} | válvula de seguridad | {n / 7:.3f} bar |" for n in range(200)]
    document = DocumentText.join([Page(1, "\n".join(rows))])
    chunks = chunks_of(document, (1000, 150))
    for row in rows:
        assert any(row in chunk.text for chunk in chunks)


@pytest.mark.parametrize("limits", [(1000, 150), (1000, 0), (300, 60)])
@pytest.mark.parametrize("separator", [" | ", "\t"])
def test_a_row_longer_than_a_body_is_not_cut_where_it_fits_in_a_chunk(limits, separator):
    sizes = [limits[0] - limits[1], limits[0] - 40, limits[0]]
    rows = [f"V-{n}{separator}".ljust(size, "x") for n, size in enumerate(sizes)]
    chunks = chunks_of(DocumentText.join([Page(1, "\n".join(["a | b", *rows, "c | d"]))]), limits)
    assert all(any(row in chunk.text for chunk in chunks) for row in rows)


@pytest.mark.parametrize("limits", [(1000, 150), (1000, 0), (1000, 40)])
@pytest.mark.parametrize(
    "heading",
    ["4.2 Presión máxima de trabajo", "4 Presión" + " de trabajo" * 16, "4 Presión\n\n4.1 En frío", "## Frío"],
)
def test_headings_of_any_length_are_in_one_chunk_with_the_start_of_what_they_head(limits, heading):
    separator = "\n" if heading.startswith("#") else "\n\n"
    after = "La presión no pasa de diez bar. " * 40
    for before in range(22, 32):
        text = f"{'La válvula regula el caudal. ' * before}\n\n{heading}{separator}{after}"
        chunks = chunks_of(DocumentText.join([Page(1, text)]), limits)
        assert any(f"{heading}{separator}La presión no pasa de diez bar." in chunk.text for chunk in chunks)


@pytest.mark.parametrize("limits", [(1000, 150), (1000, 0), (1000, 40)])
def test_the_title_of_a_long_row_is_with_it_where_both_fit(limits):
    row = "V-101 | " + "caudal " * 136
    document = DocumentText.join([Page(1, f"{'La válvula regula. ' * 30}\n\nVálvulas de la planta\n\n{row}")])
    assert chunks_of(document, limits)[-1].text.endswith(f"Válvulas de la planta\n\n{row.strip()}")


def test_text_without_boundaries_takes_time_in_proportion_to_its_length():
    document = DocumentText.join([Page(1, "漢字" * 30_000)])
    assert len(chunks_of(document, (1000, 150))) == 71


def test_an_overlap_that_does_not_fit_is_refused():
    with pytest.raises(ConfigurationError, match="INVALID_CHUNKING"):
        StructuralChunker(100, 100)
