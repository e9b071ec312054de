"""What a person reads of a file."""

from __future__ import annotations

from typing import Any

import pytest

from cli.errors import CommandError
from cli.render import printable, summary

FILE: dict[str, Any] = {
    "status": "PENDING",
    "outcome": None,
    "outcome_reason": None,
    "pages": None,
    "chunks": 0,
    "stage": None,
    "progress": {"done": 0, "total": 0},
    "error_code": None,
    "error_message": None,
}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, ""),
        ({"status": "PROCESSING", "stage": "EXTRACTING"}, "EXTRACTING"),
        ({"status": "PROCESSING", "stage": "EMBEDDING", "progress": {"done": 3, "total": 9}}, "EMBEDDING 3/9"),
        ({"status": "COMPLETED", "outcome": "INDEXED", "pages": 1, "chunks": 1}, "1 page, 1 chunk"),
        ({"status": "COMPLETED", "outcome": "INDEXED", "chunks": 4}, "4 chunks"),
        ({"status": "COMPLETED", "chunks": 4, "failed_descriptions": 1}, "4 chunks, 1 image not described"),
        ({"status": "COMPLETED", "outcome": "EMPTY", "outcome_reason": "NO_TEXT", "pages": 2}, "empty: NO_TEXT"),
        ({"status": "FAILED", "error_code": "CORRUPT", "error_message": "cut"}, "CORRUPT: cut"),
        ({"error_code": "EMBEDDER_UNAVAILABLE", "error_message": "429"}, "EMBEDDER_UNAVAILABLE: 429"),
    ],
)
def test_a_file_is_summed_up_in_a_few_words(state: dict[str, Any], expected: str) -> None:
    assert summary(FILE | state) == expected


def test_text_of_others_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[31m\x9b\nñ\udce9") == "a\\x1b[31m\\x9b\\nñ\\udce9"
    assert printable("a\n\tb\x07", keep="\n\t") == "a\n\tb\\x07"


def test_an_error_says_code_detail_place_and_remedy() -> None:
    error = CommandError("INVALID_PAGES", "5-2 is no range", where="pages", remedy="write 2-5")
    assert str(error) == "INVALID_PAGES: 5-2 is no range (pages); write 2-5"
    assert str(CommandError("X", "only this")) == "X: only this"
