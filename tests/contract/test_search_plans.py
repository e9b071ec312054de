"""The plans of the search's statements, as the server makes them with the service's own session settings.

A plan that loses the index answers the same, a hundred times slower, so no other test would see it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import asyncpg
import pytest

from deploy.embedded.server import run_blocking
from services.chassis.postgres.pool import prepare_connection
from services.chassis.postgres.queries import load_query
from services.chassis.resource_types import load_resource_types
from services.search.adapters.postgres.file_chunks import server_settings
from tests.support.postgres import Database, PostgresServer
from tests.support.search import TENANT, IndexedChunk, direction, open_index, random_directions

VECTOR_INDEX = "module_embeddings_file_chunk_embedding"
FILE_INDEX = "chunk_position_unique"
KNOWN_TEXT_INDEX = "module_embeddings_file_chunk_known_text"
TABLE = "module_embeddings_file_chunk"
QUESTION = direction(1)

Plan = Mapping[str, Any]


class Planner:
    """Explains statements of the search, as the search's role."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection

    async def plan(self, query: str, *arguments: Any) -> Plan:
        """The plan of a statement, not executed."""
        return await self.plan_of(load_query("services.search", query), *arguments)

    async def plan_of(self, statement: str, *arguments: Any) -> Plan:
        """The plan of any statement."""
        (row,) = await self.connection.fetch(f"EXPLAIN (FORMAT JSON, COSTS OFF) {statement}", *arguments)
        plan: Plan = json.loads(row[0])[0]["Plan"]
        return plan


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def indexes(plan: Plan) -> set[str]:
    """The indexes that the plan reads."""
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node}


def reads_every_chunk(plan: Plan) -> bool:
    """Whether the chunk table is read from end to end."""
    return any(node["Node Type"] == "Seq Scan" and node["Relation Name"] == TABLE for node in nodes(plan))


@pytest.fixture(scope="module")
def filled(postgres_server: PostgresServer) -> Iterator[Database]:
    """1,000 chunks: so few that a planner that goes by its costs would rather compare them all."""
    database = run_blocking(postgres_server.clone())
    run_blocking(fill(database))
    yield database
    run_blocking(postgres_server.drop(database))


async def fill(database: Database) -> None:
    async with open_index(database) as tables:
        space = await tables.add_space()
        await tables.connection.execute(f"DROP INDEX {VECTOR_INDEX}")
        for number in range(10):
            vectors = random_directions(100, seed=number)
            chunks = [
                IndexedChunk(f"{number}.{position} ".ljust(1_000, "."), vector)
                for position, vector in enumerate(vectors)
            ]
            await tables.add_file(space, chunks, name=f"{number}.pdf")
        await tables.connection.execute(
            f"CREATE INDEX {VECTOR_INDEX} ON {TABLE} USING hnsw (embedding vector_cosine_ops)"
        )
        await tables.connection.execute("VACUUM ANALYZE")


@pytest.fixture
async def planner(filled: Database) -> AsyncIterator[Planner]:
    connection = await asyncpg.connect(filled.search_url, server_settings=dict(server_settings()))
    try:
        await prepare_connection(connection)
        yield Planner(connection)
    finally:
        await connection.close()


async def test_the_search_over_all_files_walks_the_vector_index(planner: Planner) -> None:
    for top_n, min_score in ((1, None), (10, 0.5), (1_000, None)):
        plan = await planner.plan("nearest_chunks", QUESTION, TENANT, 1, top_n, min_score)

        assert VECTOR_INDEX in indexes(plan)
        assert not reads_every_chunk(plan)


async def test_the_threshold_and_the_files_name_come_after_the_walk(planner: Planner) -> None:
    plan = await planner.plan("nearest_chunks", QUESTION, TENANT, 1, 10, 0.5)

    (walk,) = (node for node in nodes(plan) if node.get("Index Name") == VECTOR_INDEX)
    (found,) = (node for node in nodes(plan) if node.get("CTE Name") == "nearest")
    assert "0.5" not in walk["Filter"]
    assert "0.5" in found["Filter"]
    assert plan["Node Type"] == "Sort"
    assert "+ '0'" in plan["Sort Key"][0]


async def test_the_tenant_and_the_space_are_conditions_of_the_walk(planner: Planner) -> None:
    plan = await planner.plan("nearest_chunks", QUESTION, TENANT, 1, 10, None)

    (walk,) = (node for node in nodes(plan) if node.get("Index Name") == VECTOR_INDEX)
    assert "tenant_id" in walk["Filter"]
    assert "space_id" in walk["Filter"]


async def test_comparing_all_never_walks_the_vector_index(planner: Planner) -> None:
    plan = await planner.plan("nearest_chunks_exact", QUESTION, TENANT, 1, 10, None)

    assert VECTOR_INDEX not in indexes(plan)


async def test_one_file_is_compared_without_reading_another(planner: Planner) -> None:
    plan = await planner.plan("nearest_chunks_of_file", QUESTION, TENANT, 1, 10, None, 3)

    assert FILE_INDEX in indexes(plan)
    assert VECTOR_INDEX not in indexes(plan)
    assert not reads_every_chunk(plan)


async def test_pages_of_one_file_are_read_without_reading_another(planner: Planner) -> None:
    plan = await planner.plan("chunks_of_file", 3, TENANT, [1], [2], -1, 201)

    assert FILE_INDEX in indexes(plan)
    assert not reads_every_chunk(plan)


async def test_counting_a_small_tenant_reads_no_others_chunk(planner: Planner) -> None:
    plan = await planner.plan("count_chunks", "small tenant", 1, 2_001)

    assert KNOWN_TEXT_INDEX in indexes(plan)
    assert not reads_every_chunk(plan)


BY_SCORE = ("ORDER BY embedding <=> $1", "ORDER BY 1 - (embedding <=> $1) DESC")
OTHER_METRIC = ("<=>", "<->")


@pytest.mark.parametrize("change", [BY_SCORE, OTHER_METRIC])
async def test_a_statement_that_loses_the_index_is_seen(planner: Planner, change: tuple[str, str]) -> None:
    statement = load_query("services.search", "nearest_chunks").replace(*change)

    plan = await planner.plan_of(statement, QUESTION, TENANT, 1, 10, None)

    assert VECTOR_INDEX not in indexes(plan)


async def test_a_session_that_goes_by_costs_is_seen(planner: Planner) -> None:
    await planner.connection.execute("SET enable_sort = on")

    plan = await planner.plan("nearest_chunks", QUESTION, TENANT, 1, 10, None)

    assert VECTOR_INDEX not in indexes(plan)


async def test_the_session_settings_outlive_the_pools_reset(planner: Planner) -> None:
    await planner.connection.execute("SET hnsw.iterative_scan = off")
    await planner.connection.reset()

    for name, value in server_settings().items():
        assert await planner.connection.fetchval("SELECT current_setting($1)", name) == value


@pytest.fixture(scope="module")
def resources(postgres_server: PostgresServer) -> Iterator[Database]:
    """100 resources of every type."""
    database = run_blocking(postgres_server.clone())
    run_blocking(fill_resources(database))
    yield database
    run_blocking(postgres_server.drop(database))


async def fill_resources(database: Database) -> None:
    async with open_index(database) as tables:
        space = await tables.add_space()
        for number, entity_type in enumerate(load_resource_types()):
            await tables.add_resources(space, entity_type, random_directions(100, seed=number))
        await tables.connection.execute("VACUUM ANALYZE")


@pytest.mark.parametrize("wanted", [slice(None), slice(2, 4), slice(0, 1)], ids=["all", "two", "one"])
async def test_the_unified_search_walks_the_vector_index_of_each_type_asked_for_and_no_other(
    resources: Database, wanted: slice
) -> None:
    types = sorted(load_resource_types())[wanted]
    connection = await asyncpg.connect(resources.search_url, server_settings=dict(server_settings()))
    await prepare_connection(connection)
    try:
        plan = await Planner(connection).plan("nearest_resources", QUESTION, TENANT, 1, 10, None, types)
    finally:
        await connection.close()

    tables = {node["Relation Name"] for node in nodes(plan) if "Relation Name" in node}
    scans = [node for node in nodes(plan) if node["Node Type"] == "Index Scan"]
    assert tables == {f"module_embeddings_{entity_type}" for entity_type in types}
    assert all(node["Index Name"].endswith("_embedding") for node in scans)
    assert len(scans) == len(types)
