"""Two rankings as one context: which goes first, and what is too much alike to be quoted twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from services.search.domain import context as context_module
from services.search.domain.context import assemble_context, count_tokens
from services.search.domain.results import FileChunkMatch, ResourceMatch

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NUMERALS = ["uno", "dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve", "diez", "once", "doce"]


def passage(number: int, text: str, score: float | None = None, lexical_rank: int | None = None) -> FileChunkMatch:
    return FileChunkMatch(
        *(number, f"p{number}", number, 0, None, None, 0, len(text)), score, None, None, lexical_rank, None, text
    )


def resource(number: int, text: str, score: float | None = None, lexical_rank: int | None = None) -> ResourceMatch:
    return ResourceMatch("rule", number, f"r{number}", text, score, None, None, lexical_rank, None, NOW)


def order(passages: Sequence[float | None], resources: Sequence[float | None], *, by_words: Sequence[str] = ()) -> str:
    """The names of what is quoted, of matches with these cosines, some of them found by their words as well."""
    context = assemble_context(
        [passage(n, f"texto {NUMERALS[n]}", one, n if f"p{n}" in by_words else None) for n, one in enumerate(passages)],
        [
            resource(n, f"regla {NUMERALS[n]}", one, n if f"r{n}" in by_words else None)
            for n, one in enumerate(resources)
        ],
        {},
        budget=100_000,
        chunks_per_file=1,
    )
    return " ".join(item.file_name if item.kind == "passage" else item.name for item in context.items)


def test_the_nearer_goes_first_and_a_ranking_that_is_far_off_comes_last() -> None:
    assert order([0.9, 0.7], [0.8, 0.6]) == "p0 r0 p1 r1"
    assert order([0.3, 0.2], [0.9, 0.8, 0.7, 0.6]) == "r0 r1 r2 r3 p0 p1"


def test_a_match_that_is_first_for_its_words_waits_for_one_at_most() -> None:
    assert order([0.1], [0.9] * 10, by_words=["p0"]).startswith("r0 p0 r1")
    assert order([0.9] * 10, [0.1], by_words=["r0"]).startswith("p0 r0 p1")


def test_the_further_down_a_match_of_words_is_the_longer_it_may_wait() -> None:
    assert order([0.1] * 3, [0.9] * 10, by_words=["p0", "p1", "p2"]) == "r0 p0 r1 r2 p1 r3 r4 r5 r6 p2 r7 r8 r9"
    assert order([0.2, 0.1], [0.9] * 5, by_words=["p1"]) == "r0 r1 r2 p0 p1 r3 r4"


def test_a_head_that_is_far_off_holds_back_nothing() -> None:
    assert order([0.1, 0.9, 0.2], [0.8, 0.7]) == "p0 p1 r0 r1 p2"


def test_rankings_by_words_alone_take_turns() -> None:
    assert order([None] * 3, [None] * 2) == "p0 r0 p1 r1 p2"
    assert order([None] * 3, [None] * 2, by_words=["p0", "p1", "p2", "r0", "r1"]) == "p0 r0 p1 r1 p2"


@pytest.mark.parametrize(
    ("quoted", "other"),
    [
        ("es de 12 bar", "es de 14 bar"),
        ("es de 1,5 bar", "es de 15 bar"),
        ("es de 5 grados", "es de -5 grados"),
        ("de P-4711/B", "de P-4711/C"),
        ("de XQ-AB", "de XQ-AC"),
        ("entre 12 y 14 bar", "entre 14 y 12 bar"),
        ("es de 12 bar", "es de 12 bar y de 16 si es el 2"),
    ],
)
def test_what_differs_in_a_number_or_a_code_is_no_duplicate(quoted: str, other: str) -> None:
    frame = (
        "La presión máxima de servicio del colector de la planta, medida con la válvula cerrada y el motor parado, {}."
    )
    texts = [frame.format(quoted), frame.format(other)]

    context = assemble_context(
        [passage(number, text) for number, text in enumerate(texts)], [], {}, budget=10_000, chunks_per_file=3
    )

    assert [item.text for item in context.items] == texts


@pytest.mark.parametrize(
    "other",
    [
        "La presión máxima de servicio del colector de la planta P-4711/B es de 12 bar.",
        "la presión máxima de servicio del colector de la planta P-4711/B es de 12 bar hoy",
        "La presión máxima de servicio del colector de la planta",
        "Hoy, la presión máxima de servicio del colector de la planta P-4711/B es de 12 bar en verano",
    ],
)
def test_what_has_no_number_or_code_of_its_own_is_a_duplicate(other: str) -> None:
    text = "La presión máxima de servicio del colector de la planta P-4711/B es de 12 bar."

    context = assemble_context([passage(1, text)], [resource(1, other)], {}, budget=10_000, chunks_per_file=3)

    assert ([item.text for item in context.items], context.left_out.duplicates) == ([text], 1)


def test_what_says_more_than_a_short_text_that_it_has_in_it_is_no_duplicate() -> None:
    short = "# Bomba de agua"
    long = (
        "La bomba de agua se ceba antes de arrancar, con la válvula cerrada, y se para cuando el depósito está vacío."
    )

    context = assemble_context([passage(1, long, 0.1)], [resource(1, short, 0.9)], {}, budget=10_000, chunks_per_file=3)

    assert {item.text for item in context.items} == {short, long}


def test_a_file_of_many_passages_is_not_counted_again_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return count_tokens(text)

    monkeypatch.setattr(context_module, "count_tokens", count)
    passages = [replace(passage(1, f"texto {n}"), chunk_id=n, position=2 * n, char_start=100 * n) for n in range(300)]

    context = assemble_context(passages, [], {}, budget=200_000, chunks_per_file=1_000)

    assert len(context.items) == 300
    assert len(counted) < 3 * 300
