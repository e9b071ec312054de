"""Which forms of a question are codes, and which of its words are one together."""

from __future__ import annotations

import pytest

from services.search.domain.fusion import is_code
from services.search.domain.words import codes_apart


@pytest.mark.parametrize("form", ["xq9931", "ige12", "p4711b", "via37", "6es72141ag40", "10048872"])
def test_letters_with_digits_and_long_numbers_are_codes(form: str) -> None:
    assert is_code(form)


@pytest.mark.parametrize(
    "form",
    [
        *("1954", "12", "12500", "10000", "12000000"),
        *("19th", "10th", "1er", "2a", "1970s", "24h", "5kg", "1500rpm", "1920x1080", "5h30"),
        *("a4", "co2", "mp3", "m8", "h2o", "4g", "bomba", "xq", ""),
    ],
)
def test_words_years_ordinals_and_quantities_are_none(form: str) -> None:
    assert not is_code(form)


@pytest.mark.parametrize(
    ("question", "codes"),
    [
        ("P 4711 B", ["p4711", "p4711b", "4711b"]),
        ("¿dónde está la p 4711 b?", ["p4711", "p4711b", "4711b"]),
        ("P - 4711 / B", ["p4711", "p4711b", "4711b"]),
        ("IGE 12, P 4711", ["ige12", "p4711"]),
        ("(IGE 12); PSV 204: ¿24 V?", ["ige12", "psv204", "24v"]),
        ("PSV 204 kPa 11", ["psv204", "psv204kpa", "psv204kpa11", "204kpa", "204kpa11", "kpa11"]),
        ("K3 12 AB", ["k312", "k312ab", "12ab"]),
        ("vía 3 e IGE 12", ["via3", "ige12"]),
        ("4711 B y M 08", ["4711b", "m08"]),
        ("EN 10025", ["en10025"]),
    ],
)
def test_letters_and_digits_that_take_turns_are_one_code_wherever_it_ends(question: str, codes: list[str]) -> None:
    assert codes_apart(question) == codes


def test_a_question_has_no_more_codes_than_are_looked_for() -> None:
    assert len(codes_apart(" ".join(f"k {number}" for number in range(1_000)))) == 100


@pytest.mark.parametrize(
    "question",
    [
        *("", "bomba", "P-4711/B", "vía_3", "4711", "12 34", "P B", "COVID 19", "bomba 12"),
        *("el 12 de mayo", "abre a 16", "En 1954 y en 1955", "P, 4711-2 B"),
    ],
)
def test_words_beside_numbers_and_codes_as_they_are_written_are_none(question: str) -> None:
    assert codes_apart(question) == []
