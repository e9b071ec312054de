"""Whether another wording of a question has what a wording may not lose."""

from __future__ import annotations

from services.search.domain.words import has_the_codes


def test_another_wording_says_something_and_has_the_codes() -> None:
    question = "¿Qué presión soporta la P-4711/B?"
    wordings = ("Presión máxima de la P-4711/B", "Carga admisible: p-4711/b", "Presión máxima", "P-4711", "-", "__", "")

    assert [has_the_codes(question, wording) for wording in wordings] == [True, True, *[False] * 5]
    assert [has_the_codes("¿Qué presión soporta?", wording) for wording in ("Carga admisible", "¿y la de?", "---")] == [
        *[True, False, False]
    ]
