"""Which forms of a question are codes."""

from __future__ import annotations

import pytest

from services.search.domain.fusion import is_code


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
