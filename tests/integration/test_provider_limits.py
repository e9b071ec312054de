"""Worker processes before a provider that allows little, or answers badly."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from email.message import Message
from pathlib import Path

import asyncpg

from services.chassis.postgres.pool import create_pool
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from tests.support.gemini_server import GeminiServer, Reply, Request, embed
from tests.support.postgres import Database
from tests.support.scarce_gemini import ScarceGemini
from tests.support.source_files import replace_file, uploaded
from tests.support.workers import PATIENCE, all_ended, running_workers, store_texts, worker_environment

FILES, CHUNKS = 14, 5
ALLOWED = 10
"""Texts in a window, a fifth or less of what two idle workers would send."""


async def test_workers_use_what_a_provider_allows_in_a_storm_of_refusals_and_no_file_fails(
    database: Database, tmp_path: Path
) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    await store_texts(database, objects, FILES, chunks=CHUNKS)
    with ScarceGemini(texts=ALLOWED, window_seconds=0.5) as provider:
        environment = worker_environment(database, objects, provider, worker_concurrency=2, max_attempts=1)
        async with running_workers([environment] * 2, tmp_path), asyncio.timeout(PATIENCE):
            assert await all_ended(database) == {"COMPLETED": FILES}

    used = [window.texts for window in provider.windows]
    assert sum(used) == FILES * CHUNKS
    assert sum(used) >= 0.9 * ALLOWED * len(used)
    assert provider.refused > 0
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
        environment = worker_environment(database, objects, provider, gemini_items_per_call=5, lease_seconds=2)
        provider.then(embed, embed)
        provider.then_hang()
        async with running_workers([environment], tmp_path) as (victim,), asyncio.timeout(PATIENCE):
            await store_texts(database, objects, 1, chunks=20)
            while len(provider.requests) < 3:
                await asyncio.sleep(0.01)
            victim.kill()
        async with running_workers([environment], second), asyncio.timeout(PATIENCE):
            assert await all_ended(database) == {"COMPLETED": 1}

    answered, (lost, *later) = provider.requests[:2], provider.requests[2:]
    paid = [text for call in (*answered, *later) for text in call.texts]
    assert len(paid) == len(set(paid))
    assert lost.texts == later[0].texts
    admin = await asyncpg.connect(database.admin_url)
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


async def vectors(admin: asyncpg.Connection) -> list[str]:
    """Whose vectors there are, each of them one of unit length."""
    rows = await admin.fetch("SELECT tenant_id, vector_norm(embedding) AS norm FROM module_embeddings_file_chunk")
    assert all(abs(row["norm"] - 1) < 1e-5 for row in rows)
    return sorted({row["tenant_id"] for row in rows})
