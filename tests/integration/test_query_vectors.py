"""A question that was asked before costs no call to a model: after a restart, in another replica, and within bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from hashlib import sha256
from typing import Any

import asyncpg
import httpx2
import numpy as np
import pytest

from services.chassis.kernel.scope import AccessScope
from services.chassis.models.model_settings import ModelSettings
from services.chassis.models.registry import GEMINI_EMBEDDING_001
from services.chassis.postgres.pool import create_pool
from services.search.adapters.postgres.query_vectors import PostgresQueryVectors
from tests.support.files import eventually
from tests.support.gemini_server import API_KEY, GeminiServer
from tests.support.postgres import Database
from tests.support.search import (
    SCOPE,
    Index,
    IndexedChunk,
    direction,
    random_directions,
    running_search,
)

QUESTION = "¿A qué presión abre la válvula?"
COUNT = "SELECT count(*) FROM module_search_query_vector"


@pytest.fixture
def gemini() -> Iterator[GeminiServer]:
    with GeminiServer() as server:
        yield server


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[asyncpg.Pool]:
    async with await create_pool(database.search_url, application_name="test") as opened:
        yield opened


def models(gemini: GeminiServer) -> ModelSettings:
    return ModelSettings(gemini_api_key=API_KEY, gemini_base_url=gemini.url)


def asked(gemini: GeminiServer) -> int:
    """How often the question was embedded."""
    return sum(request.texts == [QUESTION] for request in gemini.calls("batchEmbedContents"))


async def ask(http: httpx2.AsyncClient) -> dict[str, Any]:
    answer = await http.post("/api/web/embeddings/files/search", json={"query": QUESTION, "mode": "semantic"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_question_asked_again_costs_no_call_after_a_restart_nor_in_another_replica(
    database: Database, tables: Index, gemini: GeminiServer
) -> None:
    await tables.add_file(await tables.add_space(GEMINI_EMBEDDING_001), [IndexedChunk("Abre a 16 bar.", direction(1))])

    async with running_search(database, models(gemini)) as first:
        answer = await ask(first)
        async with running_search(database, models(gemini)) as other:
            await eventually(lambda: tables.connection.fetchval(COUNT))
            answers = [await ask(other), await ask(first)]
    async with running_search(database, models(gemini)) as restarted:
        answers.append(await ask(restarted))

    assert asked(gemini) == 1
    assert answer["executed"]["query_vector_cached"] is False
    for again in answers:
        assert again["executed"]["query_vector_cached"] is True
        assert again["results"] == answer["results"]
    stored = await tables.connection.fetchrow("SELECT * FROM module_search_query_vector")
    assert stored["text_hash"] == sha256(QUESTION.encode()).digest()
    assert QUESTION not in str(dict(stored))


async def test_where_nothing_can_be_kept_a_question_is_answered_all_the_same(
    database: Database, tables: Index, gemini: GeminiServer
) -> None:
    await tables.add_file(await tables.add_space(GEMINI_EMBEDDING_001), [IndexedChunk("Abre a 16 bar.", direction(1))])
    for change in (
        "REVOKE INSERT ON module_search_query_vector FROM cauce_search",
        "DROP TABLE module_search_query_vector",
    ):
        await tables.connection.execute(change)
        before = asked(gemini)

        async with running_search(database, models(gemini)) as http:
            for _ in range(2):
                assert len((await ask(http))["results"]) == 1

        assert asked(gemini) == before + 1, change


async def test_a_vector_is_found_only_for_the_tenant_the_space_and_the_text_that_it_was_stored_for(
    pool: asyncpg.Pool,
) -> None:
    store = PostgresQueryVectors(pool, rows=10, unused_for=timedelta(days=1), timeout_seconds=20)
    (vector,) = random_directions(1, seed=1)
    key = sha256(b"question").digest()
    await store.store(SCOPE, "one", key, vector)
    await store.store(SCOPE, "one", key, -vector)

    found = await store.find(SCOPE, "one", key)

    assert found is not None
    assert found.dtype == np.float32
    assert np.array_equal(found, vector)
    assert await store.find(AccessScope("other"), "one", key) is None
    assert await store.find(SCOPE, "other", key) is None
    assert await store.find(SCOPE, "one", sha256(b"other").digest()) is None


async def test_the_vectors_not_used_for_longest_are_forgotten_by_number_and_by_age(
    pool: asyncpg.Pool, tables: Index
) -> None:
    store = PostgresQueryVectors(pool, rows=3, unused_for=timedelta(days=30), timeout_seconds=20)
    for days, vector in zip((0, 1, 2, 3, 40, 50), random_directions(6, seed=1), strict=True):
        await store.store(SCOPE, "space", days.to_bytes(32), vector)
        await tables.connection.execute(
            "UPDATE module_search_query_vector SET used_at = now() - make_interval(days => $1) WHERE text_hash = $2",
            days,
            days.to_bytes(32),
        )

    assert await store.find(SCOPE, "space", (40).to_bytes(32)) is not None
    await store.prune()

    rows = await tables.connection.fetch("SELECT text_hash FROM module_search_query_vector ORDER BY used_at DESC")
    assert [int.from_bytes(row["text_hash"]) for row in rows] == [40, 0, 1]

    await PostgresQueryVectors(pool, rows=3, unused_for=timedelta(hours=12), timeout_seconds=20).prune()
    assert await tables.connection.fetchval(COUNT) == 2
