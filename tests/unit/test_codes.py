"""Which forms of a question are codes."""

from __future__ import annotations

import pytest

from services.search.domain.fusion import is_code


@pytest.mark.parametrize("form", ["xq9931", "ige12", "p4711b", "10048872", "m8"])
def test_letters_with_digits_and_long_numbers_are_codes(form: str) -> None:
    assert is_code(form)


@pytest.mark.parametrize("form", ["1954", "12", "bomba", "xq", ""])
def test_words_years_and_quantities_are_none(form: str) -> None:
    assert not is_code(form)
