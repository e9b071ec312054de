"""How long a provider asks to be left alone, by the header ``Retry-After``."""

from __future__ import annotations

import httpx2
import pytest

from services.chassis.models.structured import retry_after

SENT = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("30", 30.0),
        ("0.5", 0.5),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0),
        ("Sun, 06 Nov 1994 08:50:37 -0000", 60.0),
        ("Sun, 06 Nov 1994 08:50:37", 60.0),
        ("Sun, 06 Nov 1994 10:50:37 +0200", 60.0),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
        ("Sun, 06 Nov 99999999999999999999 08:00:00 GMT", None),
        ("Sun, 06 Nov 1994 08:50:37 +9999999", None),
        ("soon", None),
        ("", None),
        ("-3", None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_seconds_are_taken_as_they_are_and_a_date_by_that_of_the_answer(asked: str, seconds: float | None) -> None:
    assert retry_after(httpx2.Headers({"Retry-After": asked, "Date": SENT})) == seconds


def test_a_date_in_an_answer_without_its_own_says_nothing() -> None:
    assert retry_after(httpx2.Headers({"Retry-After": "Sun, 06 Nov 1994 08:50:37 GMT"})) is None


def test_an_answer_without_the_header_asks_for_nothing() -> None:
    assert retry_after(httpx2.Headers({"Date": SENT})) is None
