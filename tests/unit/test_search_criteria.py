"""What may be asked, and what is refused with which code."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from services.chassis.kernel.errors import InvalidInputError
from services.search.domain.criteria import (
    ChunkFilter,
    FileChunksCriteria,
    FileChunkSearchCriteria,
    PageRanges,
    SearchMode,
)


def test_a_query_is_kept_without_control_characters_and_outer_white_space() -> None:
    assert FileChunkSearchCriteria("  la\x00 bomba\ud800 \n").query_text == "la bomba"


def test_what_is_left_out_has_the_documented_defaults() -> None:
    criteria = FileChunkSearchCriteria("bomba")

    assert (criteria.top_n, criteria.min_score, criteria.file_id) == (10, None, None)


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\x00", "\ud800"])
def test_a_query_without_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        FileChunkSearchCriteria(text)

    assert (refusal.value.code, refusal.value.where) == ("INVALID_QUERY", "query")


def test_the_longest_query_counts_its_characters_after_trimming() -> None:
    assert len(FileChunkSearchCriteria(" " + "ñ" * 2_000 + " ").query_text) == 2_000

    with pytest.raises(InvalidInputError) as refusal:
        FileChunkSearchCriteria("ñ" * 2_001)
    assert (refusal.value.code, refusal.value.where) == ("QUERY_TOO_LONG", "query")


@pytest.mark.parametrize("top_n", [1, 1_000])
@pytest.mark.parametrize("min_score", [-1, -0.5, 0, 0.0, 1])
def test_limits_are_allowed_values(top_n: int, min_score: float) -> None:
    criteria = FileChunkSearchCriteria("bomba", top_n, min_score, 2**63 - 1)

    assert (criteria.top_n, criteria.min_score) == (top_n, min_score)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"top_n": 0}, "topN"),
        ({"top_n": 1_001}, "topN"),
        ({"top_n": -5}, "topN"),
        ({"min_score": 1.01}, "minScore"),
        ({"min_score": -1.01}, "minScore"),
        ({"min_score": nan}, "minScore"),
        ({"min_score": inf}, "minScore"),
        ({"file_id": 0}, "fileId"),
        ({"file_id": 2**63}, "fileId"),
        ({"exact": True, "mode": SearchMode.LEXICAL}, "exact"),
    ],
)
def test_a_parameter_out_of_range_is_named(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        FileChunkSearchCriteria("bomba", **changes)

    assert (refusal.value.code, refusal.value.where) == ("INVALID_REQUEST", where)
    assert refusal.value.remedy is not None


@pytest.mark.parametrize(
    "media_type", ["\x00", "a\x00b", "text/\x00", "\ud800", "text/\ud800", "pdf", "", "a/" + "b" * 254]
)
def test_what_cannot_be_a_media_type_is_refused(media_type: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        ChunkFilter(media_types=("text/plain", media_type))

    assert (refusal.value.code, refusal.value.where) == ("INVALID_REQUEST", "mediaTypes")


def test_a_media_type_is_taken_in_whatever_case_and_with_parameters() -> None:
    wanted = ChunkFilter(media_types=("Application/PDF", "image/svg+xml", 'text/plain; charset="utf-8"'))

    assert wanted.media_types == ("application/pdf", "image/svg+xml", 'text/plain; charset="utf-8"')


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"file_id": 0}, "fileId"),
        ({"file_id": 1, "limit": 0}, "limit"),
        ({"file_id": 1, "limit": 1_001}, "limit"),
        ({"file_id": 1, "after": -1}, "after"),
        ({"file_id": 1, "after": 2**31}, "after"),
    ],
)
def test_a_reading_out_of_range_is_named(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        FileChunksCriteria(**changes)

    assert (refusal.value.code, refusal.value.where) == ("INVALID_REQUEST", where)


@pytest.mark.parametrize(
    ("expression", "ranges"),
    [
        ("2", ((2, 2),)),
        ("2-5", ((2, 5),)),
        ("1,3-4", ((1, 1), (3, 4))),
        (" 1 , 3-4 ", ((1, 1), (3, 4))),
        ("7,1", ((1, 1), (7, 7))),
        ("1-3,2-5", ((1, 5),)),
        ("1,2,3", ((1, 3),)),
        ("1-10,2", ((1, 10),)),
        ("1000000", ((1_000_000, 1_000_000),)),
        ("007", ((7, 7),)),
    ],
)
def test_pages_are_read_as_ascending_ranges(expression: str, ranges: tuple[tuple[int, int], ...]) -> None:
    assert PageRanges.parse(expression).ranges == ranges


@pytest.mark.parametrize(
    "expression",
    [
        *("", " ", ",", "1,", ",1", "5-2", "0", "0-3", "-1", "1-", "-", "1--2", "1-2-3", "a", "1;2", "1 2", "+1"),
        *("1.5", "1e3", "²", "٣", "1000001", "99999999999999999999", ",".join(["1"] * 101)),
    ],
)
def test_pages_that_make_no_sense_are_refused(expression: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        PageRanges.parse(expression)

    assert (refusal.value.code, refusal.value.where) == ("INVALID_PAGES", "pages")
    assert refusal.value.remedy == "write pages like 2, 2-5 or 1,3-4"
