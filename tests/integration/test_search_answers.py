"""Totals, pages and remembered results over real tables: what is counted, in which order, and never out of date."""

from __future__ import annotations

import asyncio
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from services.chassis.kernel.scope import AccessScope
from services.chassis.models.space import Vector
from services.chassis.postgres.pool import create_pool
from services.chassis.resource_types import load_resource_types
from services.search.adapters.postgres.engine import Bounds
from services.search.adapters.postgres.file_chunks import PostgresFileChunkIndex
from services.search.adapters.postgres.resources import PostgresResourceIndex
from services.search.application.paging import read_page
from services.search.application.ports import Question
from services.search.domain.criteria import ChunkFilter, FileChunkSearchCriteria, ResourceFilter, ResourceSearchCriteria
from services.search.domain.cursor import Cursor, digest
from services.search.domain.fusion import Fusion
from services.search.domain.results import FoundFileChunks, FoundResources, Total
from services.search.domain.techniques import Speaker, Techniques, Turn
from tests.support.postgres import Database
from tests.support.search import TENANT, Index, IndexedChunk, direction, random_directions

SCOPE = AccessScope(TENANT)
EAST = direction(1, 0)
FIRST, SECOND, *_ = load_resource_types()


def bounds(exact_up_to: int) -> Bounds:
    return Bounds(ef_search=100, exact_up_to=exact_up_to, timeout_seconds=20)


def chunk_index(search_pool: asyncpg.Pool, exact_up_to: int = 2_000, **changes: Any) -> PostgresFileChunkIndex:
    return PostgresFileChunkIndex(search_pool, bounds(exact_up_to), **changes)


def resource_index(search_pool: asyncpg.Pool, exact_up_to: int = 2_000) -> PostgresResourceIndex:
    return PostgresResourceIndex(search_pool, [FIRST, SECOND], bounds(exact_up_to))


async def chunks(
    index: PostgresFileChunkIndex, space: int, text: str | None, vector: Vector | None = None, **criteria: Any
) -> FoundFileChunks:
    asked = FileChunkSearchCriteria(text or "any", **criteria)
    return await index.search(SCOPE, Question(space, vector, text), asked, Fusion())


async def resources(index: PostgresResourceIndex, space: int, vector: Vector, **criteria: Any) -> FoundResources:
    return await index.search(SCOPE, Question(space, vector), ResourceSearchCriteria("any", **criteria), Fusion())


async def fill(tables: Index, count: int = 300) -> int:
    """Chunks in files of 30, a third of them with the word bomba."""
    space = await tables.add_space()
    vectors = random_directions(count, seed=1)
    passages = [
        IndexedChunk(f"pieza {number} " + "bomba " * (1 + number % 2) * (number % 3 == 0), vector)
        for number, vector in enumerate(vectors)
    ]
    for at in range(0, count, 30):
        await tables.add_file(space, passages[at : at + 30])
    return space


async def test_a_total_is_exact_where_everything_was_compared(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await fill(tables)
    index = chunk_index(search_pool)
    everything = await chunks(index, space, None, EAST, top_n=300)
    tenth = everything.matches[9].score

    for text in (None, "bomba"):
        assert (await chunks(index, space, text, EAST, top_n=5)).total == Total(300)
        assert (await chunks(index, space, text, EAST, top_n=5, min_score=tenth)).total == Total(10)
        assert (await chunks(index, space, text, EAST, filter=ChunkFilter(file_ids=(1, 2)))).total == Total(60)
        assert (await chunks(index, space, text, EAST, min_score=1.0)).total == Total(0)
    assert (await chunks(index, space, "bomba", top_n=150)).total == Total(100)
    assert (await chunks(index, space, "bomba", filter=ChunkFilter(file_ids=(1, 2)))).total == Total(20)
    assert (await chunks(chunk_index(search_pool, exact_up_to=0), space, "vapor")).total == Total(0)


async def test_a_total_is_a_lower_bound_with_its_reason_where_an_index_was_walked(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await fill(tables)
    index = chunk_index(search_pool, exact_up_to=20)
    everything = await chunks(chunk_index(search_pool), space, None, EAST, top_n=300)

    for criteria in ({}, {"min_score": everything.matches[9].score}, {"filter": ChunkFilter(file_ids=(1, 2))}):
        total = (await chunks(index, space, None, EAST, **criteria)).total

        assert not total.exact
        assert total.reason
        assert 10 <= total.count <= 300
    by_words = (await chunks(index, space, "bomba")).total
    assert (by_words.exact, by_words.count) == (False, 50)


async def test_resources_have_totals_as_well(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_resources(space, FIRST, random_directions(30, seed=1))
    await tables.add_resources(space, SECOND, random_directions(20, seed=2))

    assert (await resources(resource_index(search_pool), space, EAST)).total == Total(50)
    assert (await resources(resource_index(search_pool), space, EAST, entity_types=(SECOND,))).total == Total(20)
    walked = (await resources(resource_index(search_pool, exact_up_to=5), space, EAST)).total
    assert (walked.exact, walked.count) == (False, 50)


@pytest.mark.parametrize("exact_up_to", [20, 2_000], ids=["walked", "exact"])
@pytest.mark.parametrize("mode", ["semantic", "lexical", "hybrid"])
async def test_pages_give_every_match_once(
    tables: Index, search_pool: asyncpg.Pool, exact_up_to: int, mode: str
) -> None:
    space = await fill(tables)
    question = Question(space, None if mode == "lexical" else EAST, None if mode == "semantic" else "bomba")
    given, after, size = [], None, 40
    for _ in range(20):
        index = chunk_index(search_pool, exact_up_to)  # each page from another process

        async def find(top_n: int, index: PostgresFileChunkIndex = index) -> FoundFileChunks:
            criteria = FileChunkSearchCriteria("bomba", top_n)
            return await index.search(SCOPE, question, criteria, Fusion())

        page = await read_page(find, size, after, asked=digest(mode), space=digest(space))
        given += [match.chunk_id for match in page.matches]
        if page.next is None:
            break
        after = Cursor.parse(page.next)

    assert len(given) == len(set(given)) == (100 if mode == "lexical" else 300)


async def test_pages_of_resources_give_each_once_equal_ones_in_the_order_of_their_ids(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await tables.add_space()
    for entity_type in (FIRST, SECOND):
        await tables.add_resources(space, entity_type, [EAST] * 30)

    for exact_up_to in (5, 2_000):
        given, after = [], None
        index = resource_index(search_pool, exact_up_to)

        async def find(top_n: int, index: PostgresResourceIndex = index) -> FoundResources:
            criteria = ResourceSearchCriteria("any", top_n=top_n)
            return await index.search(SCOPE, Question(space, EAST), criteria, Fusion())

        for _ in range(10):
            page = await read_page(find, 13, after, asked=digest(1), space=digest(1))
            given += [match.key for match in page.matches]
            if page.next is None:
                break
            after = Cursor.parse(page.next)
        assert given == sorted((one, number) for one in (FIRST, SECOND) for number in range(1, 31))


CHANGES = {
    "a new passage": "INSERT INTO module_embeddings_file_chunk"
    " (file_id, tenant_id, position, char_start, char_end, text, text_hash, space_id, embedding)"
    " SELECT file_id, tenant_id, 99, 0, 5, 'nuevo', 'x', space_id, embedding"
    " FROM module_embeddings_file_chunk LIMIT 1",
    "another vector": "UPDATE module_embeddings_file_chunk SET embedding = (SELECT embedding FROM"
    " module_embeddings_file_chunk ORDER BY id DESC LIMIT 1) WHERE position = 0",
    "a passage less": "DELETE FROM module_embeddings_file_chunk WHERE position = 0",
    "a file less": "DELETE FROM module_embeddings_files_file WHERE file_id = 1",
    "another name": "UPDATE module_embeddings_files_file SET name = 'otro' WHERE file_id = 1",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_result_is_remembered_until_the_index_changes(
    tables: Index, search_pool: asyncpg.Pool, change: str
) -> None:
    space = await fill(tables, 60)
    index = chunk_index(search_pool)

    first = await chunks(index, space, "bomba", EAST, top_n=60)
    again = await chunks(index, space, "bomba", EAST, top_n=60)
    await tables.connection.execute(CHANGES[change])
    after = await chunks(index, space, "bomba", EAST, top_n=60)
    once_more = await chunks(index, space, "bomba", EAST, top_n=60)

    assert (first.cached, again) == (False, replace(first, cached=True))
    assert not after.cached
    assert after.matches != first.matches
    assert once_more == replace(after, cached=True)


async def test_a_change_of_resources_is_seen_at_once(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_resources(space, FIRST, [EAST])
    index = resource_index(search_pool)

    assert [(await resources(index, space, EAST)).cached for _ in range(2)] == [False, True]
    await tables.add_resources(space, SECOND, [EAST])
    assert len((await resources(index, space, EAST)).matches) == 2
    await tables.connection.execute(f"DELETE FROM module_embeddings_resource WHERE entity_type = '{FIRST}'")
    assert [match.entity_type for match in (await resources(index, space, EAST)).matches] == [SECOND]


async def test_a_change_of_another_tenant_or_one_that_is_taken_back_forgets_nothing(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await fill(tables, 30)
    index = chunk_index(search_pool)
    await chunks(index, space, None, EAST)

    await tables.add_file(space, [IndexedChunk("otro", EAST)], tenant="another")
    transaction = tables.connection.transaction()
    await transaction.start()
    await tables.connection.execute("DELETE FROM module_embeddings_file_chunk")
    await transaction.rollback()

    assert (await chunks(index, space, None, EAST)).cached


async def test_what_is_kept_is_bounded_and_can_be_nothing(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await fill(tables, 60)
    small, none = chunk_index(search_pool, cached_characters=10_000), chunk_index(search_pool, cached_characters=0)

    for top_n in (5, 6, 7, 5):
        assert not (await chunks(small, space, None, EAST, top_n=top_n)).cached
        assert not (await chunks(none, space, None, EAST, top_n=5)).cached
    assert (await chunks(small, space, None, EAST, top_n=5)).cached


async def test_what_is_kept_of_a_question_is_as_small_however_much_was_asked(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await fill(tables, 30)
    index = chunk_index(search_pool)
    turns = tuple(Turn(Speaker.USER, f"{n} " + "presión " * 400) for n in range(20))
    files = ChunkFilter(file_ids=(1,), languages=tuple(f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"))
    tracemalloc.start()
    try:
        for number in range(1, 101):
            history = Techniques(tuple(Turn(Speaker.USER, f"{number} {turn.text}") for turn in turns))
            await chunks(index, space, None, EAST, top_n=number, techniques=history, filter=files)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 100 * 20_000


async def test_writers_of_one_tenant_count_their_changes_without_waiting_for_one_another(
    tables: Index, database: Database
) -> None:
    version = "SELECT version FROM module_embeddings_index_version_read"
    # Writing passages at the same time is another matter: pg_textsearch lets one transaction after the other do that.
    delete = "DELETE FROM module_embeddings_file_chunk WHERE file_id = $1 AND position = $2"
    await fill(tables, 60)
    before = await tables.connection.fetchval(version)
    search_pool = await create_pool(database.embeddings_url, application_name="test", max_size=2)
    async with search_pool, search_pool.acquire() as one, search_pool.acquire() as other:
        async with asyncio.timeout(20), one.transaction():
            await one.execute(delete, 1, 1)
            async with other.transaction():
                await other.execute(delete, 2, 1)
            middle = await tables.connection.fetchval(version)
            await one.execute(delete, 1, 2)
        after = await tables.connection.fetchval(version)

    assert (middle, after) == (before + 1, before + 2)


@pytest.mark.parametrize("exact_up_to", [0, 2_000], ids=["walked", "exact"])
async def test_resources_are_filtered_by_id_language_and_age_in_every_leg(
    tables: Index, search_pool: asyncpg.Pool, exact_up_to: int
) -> None:
    space = await tables.add_space()
    for entity_type in (FIRST, SECOND):
        await tables.add_resources(space, entity_type, [EAST] * 3, texts=[f"# bomba {n}" for n in range(3)])
    await tables.connection.execute(
        "UPDATE module_embeddings_resource_lexemes SET language = 'es' WHERE entity_id = 2 AND entity_type = $1", FIRST
    )
    before = datetime(2020, 1, 1, tzinfo=UTC)
    await tables.connection.execute(
        f"UPDATE module_embeddings_{SECOND} SET updated_at = $1 WHERE entity_id = 3", before
    )
    index = resource_index(search_pool, exact_up_to)
    later = before + timedelta(seconds=1)
    everything = {(one, number) for one in (FIRST, SECOND) for number in (1, 2, 3)}
    cases: list[tuple[tuple[str, ...], ResourceFilter, set[tuple[str, int]]]] = [
        ((FIRST,), ResourceFilter(entity_ids=(1, 3, 9)), {(FIRST, 1), (FIRST, 3)}),
        ((), ResourceFilter(languages=("es", "fr")), {(FIRST, 2)}),
        ((), ResourceFilter(languages=("und",)), everything - {(FIRST, 2)}),
        ((), ResourceFilter(updated_before=later), {(SECOND, 3)}),
        ((), ResourceFilter(updated_from=before, updated_before=later), {(SECOND, 3)}),
        ((), ResourceFilter(updated_from=later), everything - {(SECOND, 3)}),
        ((FIRST,), ResourceFilter(updated_before=later), set()),
    ]
    for types, wanted, expected in cases:
        for text, vector in (("bomba", None), (None, EAST), ("bomba", EAST)):
            criteria = ResourceSearchCriteria("any", types, filter=wanted)
            found = await index.search(SCOPE, Question(space, vector, text), criteria, Fusion())

            assert {match.key for match in found.matches} == expected, (wanted, text)
            assert found.total.count >= len(expected) > 0 or not expected
