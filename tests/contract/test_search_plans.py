"""The plans of the search's statements, as the server makes them with the service's own session settings.

A plan that loses the index answers the same, a hundred times slower, so no other test would see it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast

import asyncpg
import numpy as np
import pytest

from deploy.embedded.server import run_blocking
from services.chassis.kernel.scope import AccessScope
from services.chassis.postgres.pool import prepare_connection
from services.chassis.postgres.queries import load_query
from services.chassis.resource_types import load_resource_types
from services.search.adapters.postgres.engine import Bounds, SearchRun
from services.search.adapters.postgres.file_chunks import lexical_index, server_settings
from services.search.adapters.postgres.legs import Plan
from services.search.adapters.postgres.resources import LEXICAL_INDEX as RESOURCES_LEXICAL_INDEX
from services.search.adapters.postgres.statements import assemble, chunk_filter, resource_filter
from services.search.application.ports import Question
from services.search.domain.criteria import ChunkFilter, FileChunkSearchCriteria, ResourceFilter
from services.search.domain.fusion import Fusion
from services.search.domain.results import Strategy
from tests.support.postgres import Database, PostgresServer
from tests.support.search import TENANT, IndexedChunk, direction, open_index, random_directions

VECTOR_INDEX = "module_embeddings_file_chunk_embedding_1"
LEXICAL_INDEX = lexical_index(1)
FILE_INDEX = "chunk_position_unique"
KNOWN_TEXT_INDEX = "module_embeddings_file_chunk_known_text"
LANGUAGE_INDEX = "module_embeddings_file_chunk_language"
TABLE = "module_embeddings_file_chunk"
QUESTION = direction(1)

ServerPlan = Mapping[str, Any]


class Planner:
    """Explains statements of the search, as the search's role."""

    def __init__(self, connection: asyncpg.Connection, *, kept: bool = False) -> None:
        self.connection = connection
        self._kept = kept

    async def plan(self, query: str, *arguments: Any) -> ServerPlan:
        """The plan of a statement, not executed."""
        return await self.plan_of(load_query("services.search", query), *arguments)

    async def plan_of(self, statement: str, *arguments: Any) -> ServerPlan:
        """The plan of any statement: for these arguments, or the one that is kept for any."""
        explain = "EXPLAIN (FORMAT JSON, COSTS OFF)"
        if self._kept:
            await self.connection.execute(f"PREPARE explained AS {statement}")
            try:
                values = ", ".join(map(as_literal, arguments))
                (row,) = await self.connection.fetch(f"{explain} EXECUTE explained ({values})")
            finally:
                await self.connection.execute("DEALLOCATE explained")
        else:
            (row,) = await self.connection.fetch(f"{explain} {statement}", *arguments)
        plan: ServerPlan = json.loads(row[0])[0]["Plan"]
        return plan


def as_literal(value: Any) -> str:
    """The value in SQL; its type is the parameter's."""
    if value is None or isinstance(value, int | float):
        return "NULL" if value is None else str(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, list):
        value = "{" + ",".join("NULL" if one is None else f'"{one}"' for one in value) + "}"
    return f"'{value}'"


def nodes(plan: ServerPlan) -> Iterator[ServerPlan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def indexes(plan: ServerPlan) -> set[str]:
    """The indexes that the plan reads."""
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node}


def reads_every_chunk(plan: ServerPlan) -> bool:
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
            f"CREATE INDEX {VECTOR_INDEX} ON {TABLE} USING hnsw (embedding vector_cosine_ops) WHERE space_id = 1"
        )
        await tables.connection.execute("VACUUM ANALYZE")


@asynccontextmanager
async def planning(database: Database, mode: str) -> AsyncIterator[Planner]:
    settings = {**server_settings(), "plan_cache_mode": f"force_{mode}_plan"}
    connection = await asyncpg.connect(database.search_url, server_settings=settings)
    try:
        await prepare_connection(connection)
        yield Planner(connection, kept=mode == "generic")
    finally:
        await connection.close()


@pytest.fixture(params=["custom", "generic"])
async def planner(filled: Database, request: pytest.FixtureRequest) -> AsyncIterator[Planner]:
    """The server makes a plan for each question at first, and may then keep one for all."""
    async with planning(filled, request.param) as planner:
        yield planner


def make_run(kind: str, tenant: str, **values: Any) -> SearchRun:
    """A search without a connection: it only makes statements."""
    wanted = values.pop("wanted", ChunkFilter() if kind == "chunks" else ResourceFilter())
    if kind == "chunks":
        fragments, conditions = chunk_filter(wanted, list(wanted.file_ids) or None)
    else:
        fragments, conditions = resource_filter(wanted)
    words_index = LEXICAL_INDEX if kind == "chunks" else RESOURCES_LEXICAL_INDEX
    words = {"words": ["bomba", None], "forms": ["bomb", "ige12"], "forms_asked": "bomb ige12"}
    return SearchRun(
        cast(Any, None),
        kind,
        words_index,
        Bounds(ef_search=100, exact_up_to=2_000, timeout_seconds=1),
        scope=AccessScope(tenant),
        question=Question(1),
        criteria=FileChunkSearchCriteria("any", min_score=values.pop("min_score", None)),
        fragments=fragments,
        values={**words, **conditions, **values},
    )


def statement_of(
    dense: Strategy | None, lexical: Strategy | None = None, kind: str = "chunks", **values: Any
) -> tuple[str, list[Any]]:
    question = Question(1, None if dense is None else QUESTION, None if lexical is None else "bomba IGE12")
    plan = Plan(dense, lexical, window=50, dense_limit=values.get("top_n", 10), lexical_limit=50)
    return make_run(kind, TENANT, **values).statement(question, plan, Fusion())


async def plan_of(
    planner: Planner, dense: Strategy | None, lexical: Strategy | None = None, **values: Any
) -> ServerPlan:
    statement, arguments = statement_of(dense, lexical, **values)
    return await planner.plan_of(statement, *arguments)


async def test_the_search_over_all_files_walks_the_vector_index(planner: Planner) -> None:
    for top_n, min_score in ((1, None), (10, 0.5), (1_000, None)):
        plan = await plan_of(planner, Strategy.HNSW, top_n=top_n, min_score=min_score)

        (leg,) = (node for node in nodes(plan) if node.get("Subplan Name") == "CTE dense")
        assert VECTOR_INDEX in indexes(leg)
        assert not reads_every_chunk(leg)


async def test_the_threshold_comes_after_the_walk(planner: Planner) -> None:
    plan = await plan_of(planner, Strategy.HNSW, min_score=0.5)

    (walk,) = (node for node in nodes(plan) if node.get("Index Name") == VECTOR_INDEX)
    assert "<=>" not in walk["Filter"]
    assert any("distance" in node.get("Filter", "") for node in nodes(plan))


async def test_the_scope_and_the_filter_are_conditions_of_the_walk(planner: Planner) -> None:
    plan = await plan_of(planner, Strategy.HNSW, wanted=ChunkFilter(file_ids=(1, 2), languages=("es",)))

    (walk,) = (node for node in nodes(plan) if node.get("Index Name") == VECTOR_INDEX)
    for column in ("tenant_id", "file_id", "language"):
        assert column in walk["Filter"]


async def test_a_condition_on_files_that_cannot_be_listed_is_looked_up_during_the_walk(planner: Planner) -> None:
    statement, arguments = statement_of(Strategy.HNSW, wanted=ChunkFilter(media_types=("application/pdf",)))
    plan = await planner.plan_of(statement, *arguments)

    assert VECTOR_INDEX in indexes(plan)
    assert "module_embeddings_files_file" in {node.get("Relation Name") for node in nodes(plan)}


async def test_both_indexes_serve_a_hybrid_search(planner: Planner) -> None:
    plan = await plan_of(planner, Strategy.HNSW, Strategy.BM25)

    assert {VECTOR_INDEX, LEXICAL_INDEX} <= indexes(plan)
    assert not reads_every_chunk(plan)


async def test_a_lexical_search_reads_the_index_of_words_and_no_vector(planner: Planner) -> None:
    plan = await plan_of(planner, None, Strategy.BM25)

    assert LEXICAL_INDEX in indexes(plan)
    assert VECTOR_INDEX not in indexes(plan)
    assert not reads_every_chunk(plan)


@pytest.mark.parametrize("dense", [Strategy.HNSW, None])
async def test_matches_of_words_are_not_scored_again_from_their_texts(planner: Planner, dense: Strategy | None) -> None:
    plan = await plan_of(planner, dense, Strategy.BM25)

    # Only there does the extension take the scores from the scan.
    assert not any(LEXICAL_INDEX in indexes(node) for node in nodes(plan) if "Subplan Name" in node)


async def test_comparing_all_never_walks_an_index_of_its_own_kind(planner: Planner) -> None:
    plan = await plan_of(planner, Strategy.EXACT, Strategy.EXACT)

    assert not {VECTOR_INDEX, LEXICAL_INDEX} & indexes(plan)


async def test_one_file_is_compared_without_reading_another(filled: Database) -> None:
    # A plan that is kept is for ten files, which are all that there are here: the server sees that it is dearer.
    async with planning(filled, "custom") as planner:
        plan = await plan_of(planner, Strategy.EXACT, wanted=ChunkFilter(file_ids=(3,)))

    assert FILE_INDEX in indexes(plan)
    assert VECTOR_INDEX not in indexes(plan)
    assert not reads_every_chunk(plan)


async def test_pages_of_one_file_are_read_without_reading_another(planner: Planner) -> None:
    plan = await planner.plan("chunks_of_file", 3, TENANT, [1], [2], -1, 201)

    assert FILE_INDEX in indexes(plan)
    assert not reads_every_chunk(plan)


@pytest.mark.parametrize("count", [1, 200])
async def test_chunks_beside_others_are_read_without_reading_all(planner: Planner, count: int) -> None:
    plan = await planner.plan("chunks_beside", TENANT, [3] * count, list(range(count)))

    assert FILE_INDEX in indexes(plan)
    assert not reads_every_chunk(plan)


async def test_counting_a_small_tenant_reads_no_others_chunk(planner: Planner) -> None:
    values = {"tenant": "small tenant", "exact_up_to": 2_000}
    statement, arguments = assemble("count_chunks", {"filter": "", "space": "1"}, values)
    plan = await planner.plan_of(statement, *arguments)

    assert indexes(plan) & {KNOWN_TEXT_INDEX, LANGUAGE_INDEX}
    assert not reads_every_chunk(plan)


async def test_a_statement_without_the_tenant_is_refused() -> None:
    with pytest.raises(ValueError, match="tenant"):
        assemble("no_dense_chunks", {}, {"tenant": TENANT})


BY_SCORE = ("ORDER BY embedding <=> $1", "ORDER BY 1 - (embedding <=> $1) DESC")
OTHER_METRIC = ("<=>", "<->")


@pytest.mark.parametrize("change", [BY_SCORE, OTHER_METRIC])
async def test_a_statement_that_loses_the_index_is_seen(planner: Planner, change: tuple[str, str]) -> None:
    statement, arguments = statement_of(Strategy.HNSW)

    plan = await planner.plan_of(statement.replace(*change), *arguments)

    assert VECTOR_INDEX not in indexes(plan)


async def test_a_session_that_goes_by_costs_is_seen(planner: Planner) -> None:
    await planner.connection.execute("SET enable_sort = on")

    plan = await plan_of(planner, Strategy.HNSW)

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
    async with planning(resources, "custom") as planner:
        plan = await plan_of(planner, Strategy.HNSW, kind="resources", types=types)

    (leg,) = (node for node in nodes(plan) if node.get("Subplan Name") == "CTE dense")
    tables = {node["Relation Name"] for node in nodes(leg) if "Relation Name" in node}
    scans = [node for node in nodes(leg) if node["Node Type"] == "Index Scan"]
    assert tables == {f"module_embeddings_{entity_type}" for entity_type in types}
    assert all(node["Index Name"].endswith("_embedding_1") for node in scans)
    assert len(scans) == len(types)


async def test_a_kept_plan_of_the_unified_search_skips_the_types_not_asked_for(resources: Database) -> None:
    async with planning(resources, "generic") as planner:
        plan = await plan_of(planner, Strategy.HNSW, kind="resources", types=["variable"])

    (leg,) = (node for node in nodes(plan) if node.get("Subplan Name") == "CTE dense")
    arms = [node for node in nodes(leg) if "One-Time Filter" in node]
    assert len(arms) == len(load_resource_types())
    assert all(index.endswith("_embedding_1") for index in indexes(leg))


async def test_filters_on_resources_are_conditions_of_the_walk(resources: Database) -> None:
    wanted = ResourceFilter(entity_ids=(1, 2), languages=("und",), updated_from=datetime(2026, 1, 1, tzinfo=UTC))
    async with planning(resources, "custom") as planner:
        types = sorted(load_resource_types())[:2]
        plan = await plan_of(planner, Strategy.HNSW, kind="resources", types=types, wanted=wanted)

    (leg,) = (node for node in nodes(plan) if node.get("Subplan Name") == "CTE dense")
    walks = [node for node in nodes(leg) if node.get("Index Name", "").endswith("_embedding_1")]
    assert len(walks) == 2
    for walk in walks:
        assert "entity_id" in walk["Filter"]
        assert "updated_at" in walk["Filter"]
