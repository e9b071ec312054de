"""Contexts of whatever was found: never over the budget, no text twice, and cited is exactly what is quoted."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.search.domain.context import Context, Passage, QuotedResource, assemble_context, count_tokens
from services.search.domain.results import FileChunk, FileChunkMatch, ResourceMatch

WORDS = ("bomba", "presión", "válvula", "PSV-204", "11,5 bar", "漢字", "the", "of", "cierra.", "abre!", "\n", "\n\n")
NOW = datetime(2026, 1, 1, tzinfo=UTC)

documents = st.lists(st.sampled_from(WORDS) | st.integers(0, 10_000).map(str), min_size=1, max_size=120).map(" ".join)


def cut(text: str, body: int, overlap: int) -> list[tuple[int, int, str]]:
    """Chunks as the chunker makes them: bodies that follow one another, each after some of the text before it."""
    chunks = []
    for start in range(0, len(text), body):
        first = max(start - overlap, 0)
        piece = text[first : start + body]
        stripped = piece.strip()
        if stripped:
            at = first + len(piece) - len(piece.lstrip())
            chunks.append((at, at + len(stripped), stripped))
    return chunks


@st.composite
def findings(draw: st.DrawFn) -> tuple[dict[int, str], list[FileChunkMatch], dict[tuple[int, int], FileChunk]]:
    """Files, some of their chunks as matches, best first, and the chunks beside those."""
    texts = dict(enumerate(draw(st.lists(documents, min_size=1, max_size=3)), start=1))
    everything: dict[tuple[int, int], FileChunk] = {}
    for file_id, text in texts.items():
        body = draw(st.integers(20, 60))
        for position, (start, end, piece) in enumerate(cut(text, body, draw(st.integers(0, body // 2)))):
            everything[file_id, position] = FileChunk(
                file_id * 1_000 + position, position, position + 1, position + 1, start, end, piece
            )
    order = draw(st.permutations(sorted(everything)))[: draw(st.integers(0, 12))]
    matches = [
        FileChunkMatch(
            place[0],
            f"file {place[0]}",
            chunk.chunk_id,
            chunk.position,
            chunk.page_from,
            chunk.page_to,
            chunk.char_start,
            chunk.char_end,
            draw(st.none() | st.floats(0, 1)),
            None,
            1,
            None,
            None,
            chunk.text,
        )
        for place in order
        if (chunk := everything.get(place)) is not None
    ]
    places = {(match.file_id, match.position) for match in matches}
    beside = {
        place: chunk
        for place, chunk in everything.items()
        if place not in places and {(place[0], place[1] - 1), (place[0], place[1] + 1)} & places
    }
    return texts, matches, beside


def resource(number: int, text: str) -> ResourceMatch:
    return ResourceMatch("rule", number, f"rule {number}", text, 0.5, None, 1, None, None, NOW)


resources = st.lists(documents, max_size=4).map(
    lambda texts: [resource(number, text) for number, text in enumerate(texts, start=1) if text.strip()]
)


def assembled(
    found: tuple[dict[int, str], list[FileChunkMatch], dict[tuple[int, int], FileChunk]],
    others: list[ResourceMatch],
    budget: int,
    chunks_per_file: int,
) -> Context:
    return assemble_context(found[1], others, found[2], budget=budget, chunks_per_file=chunks_per_file)


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


@given(findings(), resources, st.integers(1, 400), st.integers(1, 5))
def test_a_context_keeps_its_promises(
    found: tuple[dict[int, str], list[FileChunkMatch], dict[tuple[int, int], FileChunk]],
    others: list[ResourceMatch],
    budget: int,
    chunks_per_file: int,
) -> None:
    context = assembled(found, others, budget, chunks_per_file)
    texts, matches, beside = found
    passages = [item for item in context.items if isinstance(item, Passage)]
    quoted = [item for item in context.items if isinstance(item, QuotedResource)]

    assert context.tokens == count_tokens(context.text) <= budget
    for item in context.items:
        assert f"{item.source}\n{item.text}" in context.text
    for passage in passages:
        assert bare(passage.text) == bare(texts[passage.file_id][passage.char_start : passage.char_end])
        chunks = {chunk.chunk_id: chunk for chunk in (*matches, *beside.values())}
        cited = [chunks[chunk_id] for chunk_id in passage.chunk_ids]
        assert (passage.char_start, passage.char_end) == (cited[0].char_start, max(one.char_end for one in cited))
        assert (passage.page_from, passage.page_to) == (cited[0].page_from, cited[-1].page_to)
    for file_id in texts:
        spans = sorted((one.char_start, one.char_end) for one in passages if one.file_id == file_id)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
        assert sum(len(one.chunk_ids) for one in passages if one.file_id == file_id) <= chunks_per_file
    ids = [chunk_id for passage in passages for chunk_id in passage.chunk_ids]
    assert len(ids) == len(set(ids))
    left_out = context.left_out.budget + context.left_out.duplicates + context.left_out.per_file
    assert left_out + len(quoted) + len({one.chunk_id for one in matches} & set(ids)) == len(matches) + len(others)


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_texts_joined_by_a_line_end_count_their_sum(one: str, other: str) -> None:
    assert count_tokens(f"{one}\n{other}") == count_tokens(one) + 1 + count_tokens(other)


@given(st.text(st.characters(codec="utf-8")))
def test_no_text_counts_more_than_its_bytes(text: str) -> None:
    cleaned = text.encode(errors="replace").decode()
    assert 0 <= count_tokens(cleaned) <= len(cleaned.encode())


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("VCC GND TXD RXD SCL SDA MOSI MISO NRST VDDA VSSA", 23),
        ("xkcd qwrtz bcdfg hjklm npqrs", 16),
        ("UNA PARED DE PIEDRA CALIZA", 9),
        ("THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG", 18),
        ("kWh MHz GHz mA mV kPa", 9),
        ("strč prst skrz krk", 7),
        (
            "ATENCIÓN: LA VÁLVULA PSV ABRE A LA PRESIÓN DE TARADO. DESCONECTE VCC GND TXD RXD SCL SDA MOSI MISO NRST"
            " VDDA VSSA ANTES DE ABRIR.",
            56,
        ),
    ],
)
def test_capitals_and_words_without_vowels_count_no_less_than_the_tokens_of_a_real_model(
    text: str, tokens: int
) -> None:
    """The tokens are those of XLM-R."""
    assert tokens <= count_tokens(text) < 3 * tokens
