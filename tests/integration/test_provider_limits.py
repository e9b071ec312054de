"""Worker processes before a provider that allows little, or answers badly."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from email.message import Message
from pathlib import Path

import asyncpg
import httpx2

from services.chassis.postgres.pool import create_pool
from services.chassis.resource_types import load_resource_types
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.embeddings.adapters.postgres.resource_mirror import PostgresResourceMirror
from tests.support.gemini_server import GeminiServer, Reply, Request, embed, failure
from tests.support.ports import free_port
from tests.support.postgres import Database
from tests.support.resources import put
from tests.support.scarce_gemini import ScarceGemini
from tests.support.source_files import replace_file, uploaded
from tests.support.workers import PATIENCE, all_ended, running_workers, store_texts, worker_environment

FILES, CHUNKS = 14, 5
WORKERS, CONCURRENCY = 2, 2
ALLOWED = 10
"""Texts in a window, half of what the workers would send at once."""


async def test_workers_use_what_a_provider_allows_in_a_storm_of_refusals_and_no_file_fails(
    database: Database, tmp_path: Path
) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    await store_texts(database, objects, FILES, chunks=CHUNKS)
    with ScarceGemini(texts=ALLOWED, window_seconds=0.5, until_short=True) as provider:
        environment = worker_environment(database, objects, provider, worker_concurrency=CONCURRENCY, max_attempts=1)
        async with running_workers([environment] * WORKERS, tmp_path), asyncio.timeout(PATIENCE):
            assert await all_ended(database) == {"COMPLETED": FILES}

    used = [window.texts for window in provider.windows]
    assert used == [ALLOWED] * (FILES * CHUNKS // ALLOWED)
    # Whoever is refused asks again when the provider said, and not before.
    assert len(used) - 1 <= provider.refused <= WORKERS * CONCURRENCY * len(used)
    # Nothing was paid for twice, and no call was cut into smaller ones.
    assert [len(texts) for texts in provider.embedded] == [CHUNKS] * FILES
    assert len({text for texts in provider.embedded for text in texts}) == FILES * CHUNKS
    admin = await asyncpg.connect(database.admin_url)
    assert await admin.fetchval("SELECT max(attempts) FROM module_embeddings_files_file") == 1
    await admin.close()


async def test_what_was_embedded_before_a_worker_was_killed_is_not_paid_for_again(
    database: Database, tmp_path: Path
) -> None:
    objects, second = tmp_path / "objects", tmp_path / "second"
    objects.mkdir()
    second.mkdir()
    with GeminiServer() as provider:
        environment = worker_environment(database, objects, provider, gemini_items_per_call=5)
        provider.then(embed, embed)
        provider.then_hang()
        async with running_workers([environment], tmp_path) as (victim,), asyncio.timeout(PATIENCE):
            await store_texts(database, objects, 1, chunks=20)
            while len(provider.requests) < 3:
                await asyncio.sleep(0.01)
            victim.kill()
        admin = await asyncpg.connect(database.admin_url)
        await admin.execute("UPDATE module_embeddings_files_file SET lease_expires_at = now()")
        async with running_workers([environment], second), asyncio.timeout(PATIENCE):
            assert await all_ended(database) == {"COMPLETED": 1}

    answered, (lost, *later) = provider.requests[:2], provider.requests[2:]
    paid = [text for call in (*answered, *later) for text in call.texts]
    assert len(paid) == len(set(paid))
    assert lost.texts == later[0].texts
    assert await admin.fetchval("SELECT count(*) FROM module_embeddings_kept_vector") == 0
    assert await admin.fetchval("SELECT count(*) FROM module_embeddings_file_chunk") == len(paid)
    await admin.close()


BAD_ANSWERS: dict[str, Callable[[list[float]], list[list[float | None]]]] = {
    "missing": lambda good: [],
    "surplus": lambda good: [good, good],
    "nan": lambda good: [[math.nan, *good[1:]]],
    "infinite": lambda good: [[math.inf, *good[1:]]],
    "zero": lambda good: [[0.0] * len(good)],
    "short": lambda good: [good[:-1]],
    "long": lambda good: [[*good, 0.1]],
    "without-a-number": lambda good: [[None, *good[1:]]],
}


class FaultyGemini(GeminiServer):
    """Answers badly for a text that names a kind of bad answer, until it is mended."""

    mended = False

    def answer(self, request: Request, path: str, headers: Message, body: bytes) -> Reply:
        reply = super().answer(request, path, headers, body)
        kinds = [kind for kind in BAD_ANSWERS if any(f" {kind}-0-" in text for text in request.texts)]
        if self.mended or not kinds:
            return reply
        *others, last = reply.body["embeddings"]
        bad = [{"values": values} for values in BAD_ANSWERS[kinds[0]](last["values"])]
        return Reply(200, {"embeddings": [*others, *bad]})


async def test_a_vector_that_is_none_reaches_no_table_and_its_file_is_tried_again_and_then_fails(
    database: Database, tmp_path: Path
) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    admin = await asyncpg.connect(database.admin_url)
    file_ids = [
        file_id
        for name in ("good", *BAD_ANSWERS)
        for file_id in await store_texts(database, objects, 1, chunks=1, tenant=name)
    ]
    with FaultyGemini() as provider:
        environment = worker_environment(database, objects, provider, worker_concurrency=4, max_attempts=2)
        async with running_workers([environment], tmp_path), asyncio.timeout(PATIENCE):
            assert await all_ended(database) == {"COMPLETED": 1, "FAILED": len(BAD_ANSWERS)}
            rows = await admin.fetch("SELECT * FROM module_embeddings_files_file WHERE tenant_id <> 'good'")
            assert {(row["error_code"], row["attempts"]) for row in rows} == {("ATTEMPTS_EXHAUSTED", 2)}
            for row in rows:
                assert "gave up after 2 attempts" in row["error_message"], row
            assert await vectors(admin) == ["good"]

            provider.mended = True
            for file_id in file_ids:
                await replace_file(admin, file_id)
            pool = await create_pool(database.embeddings_url, application_name="test")
            await PostgresFileMirror(pool).mark([uploaded(file_id) for file_id in file_ids])
            await pool.close()
            assert await all_ended(database) == {"COMPLETED": len(file_ids)}
    assert await vectors(admin) == sorted(["good", *BAD_ANSWERS])
    await admin.close()


OUTAGES: dict[str, Reply | None] = {
    "errors": failure(500, "INTERNAL"),
    "pages of HTML": Reply(200, "<html>Log in</html>"),
    "no vectors": Reply(200, {"embeddings": []}),
    "refusals": failure(400, "INVALID_ARGUMENT"),
    "too much": Reply(200, b" " * 8_000_000),
    "no rights": failure(403, "PERMISSION_DENIED"),
    "silence": None,
}


class OutGemini(GeminiServer):
    """Answers nobody well while an outage lasts."""

    outage: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.failed: Counter[str] = Counter()

    def answer(self, request: Request, path: str, headers: Message, body: bytes) -> Reply:
        kind = self.outage
        if kind is None:
            return super().answer(request, path, headers, body)
        self.failed[kind] += 1
        reply = OUTAGES[kind]
        if reply is None:
            time.sleep(2)
        return reply or Reply(200, "")


async def test_no_outage_of_a_provider_makes_anything_fail_however_long_it_lasts(
    database: Database, tmp_path: Path
) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    admin = await asyncpg.connect(database.admin_url)
    port = free_port()
    with OutGemini() as provider:
        environment = worker_environment(
            database,
            objects,
            provider,
            max_attempts=1,
            worker_concurrency=4,
            worker_port=port,
            gemini_timeout_seconds=1,
            gemini_longest_pause_seconds=0.2,
        )
        provider.outage = "errors"
        await store_texts(database, objects, 6, chunks=1)
        await store_tags(database, admin, 6)
        async with running_workers([environment], tmp_path), asyncio.timeout(PATIENCE):
            for kind in OUTAGES:
                provider.outage = kind
                while provider.failed[kind] < 3:
                    await asyncio.sleep(0.02)
            said = """SELECT EXISTS (SELECT FROM module_embeddings_files_file
                                     WHERE status = 'PENDING' AND error_message LIKE '%fails at everything%')"""
            while not await admin.fetchval(said):
                await asyncio.sleep(0.02)
            async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
                ready = (await client.get(f"http://127.0.0.1:{port}/health/ready")).json()
            assert ready["status"] == "ready"
            assert "out since" in ready["waits"]["gemini-embedding-001"]

            provider.outage = None
            assert await all_ended(database) == {"COMPLETED": 6}
            waiting = "SELECT count(*) FROM module_embeddings_resource WHERE status <> 'COMPLETED'"
            while await admin.fetchval(waiting):
                await asyncio.sleep(0.05)
    assert await admin.fetchval("SELECT max(attempts) FROM module_embeddings_files_file") == 1
    assert await admin.fetchval("SELECT out_since IS NULL FROM module_embeddings_model_quota")
    await admin.close()


async def test_a_database_that_goes_away_during_an_attempt_spends_none(database: Database, tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    admin = await asyncpg.connect(database.admin_url)
    with GeminiServer() as provider:
        environment = worker_environment(database, objects, provider, max_attempts=1)
        asked, answered = threading.Event(), threading.Event()

        def late(request: Request) -> Reply:
            asked.set()
            answered.wait(PATIENCE)
            return embed(request)

        provider.then(late)
        await store_texts(database, objects, 1, chunks=1)
        async with running_workers([environment], tmp_path) as (worker,), asyncio.timeout(PATIENCE):
            while not asked.is_set():
                await asyncio.sleep(0.02)
            await admin.execute(f"ALTER DATABASE {database.name} CONNECTION LIMIT 0")
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cauce-worker'"
            await admin.execute(cut)
            answered.set()
            while not worker.says("file_interrupted"):
                await asyncio.sleep(0.02)
            await admin.execute(f"ALTER DATABASE {database.name} CONNECTION LIMIT -1")
            assert await all_ended(database) == {"COMPLETED": 1}
    assert await admin.fetchval("SELECT attempts FROM module_embeddings_files_file") == 1
    await admin.close()


async def store_tags(database: Database, admin: asyncpg.Connection, count: int) -> None:
    """Write and announce so many resources."""
    types = load_resource_types()
    pool = await create_pool(database.embeddings_url, application_name="test")
    for number in range(1, count + 1):
        await put(admin, types["tag"], number, f"Etiqueta {number}")
    await PostgresResourceMirror(pool, types).sweep()
    await pool.close()


async def vectors(admin: asyncpg.Connection) -> list[str]:
    """Whose vectors there are, each of them one of unit length."""
    rows = await admin.fetch("SELECT tenant_id, vector_norm(embedding) AS norm FROM module_embeddings_file_chunk")
    assert all(abs(row["norm"] - 1) < 1e-5 for row in rows)
    return sorted({row["tenant_id"] for row in rows})
