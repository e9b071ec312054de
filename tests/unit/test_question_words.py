"""Whether a rewritten question still asks for the same."""

from __future__ import annotations

import pytest

from services.search.domain.words import has_the_codes, keeps_the_point

CONTEXT = ["¿Qué incluye el plan mensual?", "Incluye soporte."]


@pytest.mark.parametrize(
    ("question", "rewritten"),
    [
        ("¿y en el plan anual?", "¿Qué incluye el plan anual?"),
        ("y eso cuánto cuesta", "¿Cuánto cuesta el plan mensual?"),
        ("¿Y las PRESIONES?", "¿Qué presión tiene la válvula?"),
        ("Sí, la P-4711/B", "¿Qué presión soporta la bomba P-4711/B?"),
        ("¿y eso?", "¿Qué es el soporte?"),
        ("and in 2024?", "What did the monthly plan include in 2024?"),
    ],
)
def test_a_rewriting_that_keeps_words_codes_and_numbers_may_ask_the_same(question: str, rewritten: str) -> None:
    assert keeps_the_point(question, rewritten, context=CONTEXT)


@pytest.mark.parametrize(
    ("question", "rewritten"),
    [
        ("¿y en el plan anual?", "¿Qué tiempo hace?"),
        ("y eso cuánto cuesta", "¿Qué es eso?"),
        ("Sí, la P-4711/B", "¿Qué presión soporta la bomba P-4711?"),
        ("and in 2024?", "What did the monthly plan include in 2023?"),
        ("¿y eso?", "¿Qué es la vida?"),
        ("¿y eso?", "¿?"),
    ],
)
def test_a_rewriting_that_loses_what_was_asked_is_known(question: str, rewritten: str) -> None:
    assert not keeps_the_point(question, rewritten, context=CONTEXT)


def test_another_wording_says_something_and_has_the_codes() -> None:
    question = "¿Qué presión soporta la P-4711/B?"
    wordings = ("Presión máxima de la P-4711/B", "Carga admisible: p-4711/b", "Presión máxima", "P-4711", "-", "--", "")

    assert [has_the_codes(question, wording) for wording in wordings] == [True, True, *[False] * 5]
    assert [has_the_codes("¿Qué presión soporta?", wording) for wording in ("Carga admisible", "¿y la de?", "---")] == [
        *[True, False, False]
    ]
