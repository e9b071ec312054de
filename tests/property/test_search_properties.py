"""Page expressions and criteria, whatever is written in them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from services.chassis.kernel.errors import InvalidInputError
from services.search.domain.criteria import PAGE_MAX, QUERY_MAX_CHARACTERS, FileChunkSearchCriteria, PageRanges

T = TypeVar("T")

pages = st.integers(1, 60)
ranges = st.tuples(pages, pages).map(sorted).map(tuple)
selections = st.lists(ranges, min_size=1, max_size=8)


def written(selection: list[tuple[int, ...]]) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in selection)


def attempted(make: Callable[[], T]) -> T | InvalidInputError:
    try:
        return make()
    except InvalidInputError as error:
        return error


@given(selections)
def test_a_selection_holds_exactly_the_pages_that_were_written(selection: list[tuple[int, ...]]) -> None:
    parsed = PageRanges.parse(written(selection))

    named = {page for first, last in selection for page in range(first, last + 1)}
    assert {page for page in range(62) if page in parsed} == named


@given(selections)
def test_ranges_are_ascending_and_never_touch(selection: list[tuple[int, ...]]) -> None:
    parsed = PageRanges.parse(written(selection)).ranges

    assert all(1 <= first <= last <= PAGE_MAX for first, last in parsed)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(parsed))


@given(selections, st.randoms())
def test_the_order_in_which_pages_are_written_is_free(selection: list[tuple[int, ...]], random: Random) -> None:
    shuffled = list(selection)
    random.shuffle(shuffled)

    assert PageRanges.parse(written(shuffled)) == PageRanges.parse(written(selection))


@given(selections)
def test_a_selection_written_again_is_the_same(selection: list[tuple[int, ...]]) -> None:
    parsed = PageRanges.parse(written(selection))

    assert PageRanges.parse(str(parsed)) == parsed


@given(st.text(alphabet=st.sampled_from("0123456789,- \t\n٣²ab"), max_size=30) | st.text(max_size=30))
def test_any_page_expression_is_read_or_refused_with_one_code(expression: str) -> None:
    parsed = attempted(lambda: PageRanges.parse(expression))

    assert parsed.code == "INVALID_PAGES" if isinstance(parsed, InvalidInputError) else parsed.ranges


@given(
    st.text(max_size=50),
    st.integers(-5, 1_100),
    st.none() | st.floats(),
    st.none() | st.integers(-5, 2**64),
)
def test_criteria_that_exist_are_valid(query: str, top_n: int, min_score: float | None, file_id: int | None) -> None:
    criteria = attempted(lambda: FileChunkSearchCriteria(query, top_n, min_score, file_id))

    if isinstance(criteria, InvalidInputError):
        assert criteria.where in {"query", "topN", "minScore", "fileId"}
    else:
        assert 1 <= len(criteria.query_text) <= QUERY_MAX_CHARACTERS
        assert criteria.query_text == criteria.query_text.strip()
        criteria.query_text.encode()
        assert 1 <= criteria.top_n <= 1_000
        assert criteria.min_score is None or -1 <= criteria.min_score <= 1
        assert criteria.file_id is None or 1 <= criteria.file_id < 2**63
