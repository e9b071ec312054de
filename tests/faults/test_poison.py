"""Files that nobody can process, among a thousand that everybody can."""

from __future__ import annotations

import asyncio
from email.message import Message
from pathlib import Path

import asyncpg
import pytest

from tests.faults.fleet import PATIENCE
from tests.support.gemini_server import GeminiServer, Reply, Request
from tests.support.postgres import Database
from tests.support.workers import all_ended, running_workers, store_texts, worker_environment

GOOD_FILES, GOOD_FILES_OF_A_LONG_RUN = 40, 997
SECONDS_A_FILE = 1.0


class PoisonedGemini(GeminiServer):
    """Answers with a vector of zeros for the text that is poison."""

    def answer(self, request: Request, path: str, headers: Message, body: bytes) -> Reply:
        reply = super().answer(request, path, headers, body)
        if any(" poison-0-" in text for text in request.texts):
            return Reply(
                200, {"embeddings": [{"values": [0.0] * len(it["values"])} for it in reply.body["embeddings"]]}
            )
        return reply


async def test_files_that_are_poison_end_with_their_reason_and_all_the_others_are_completed_at_once(
    database: Database, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    good = GOOD_FILES_OF_A_LONG_RUN if pytestconfig.getoption("faults_long") else GOOD_FILES
    objects = tmp_path / "objects"
    (objects / "files").mkdir(parents=True)  # a storage without any is one that is away
    poison = [
        *await store_texts(database, objects, 1, chunks=1, tenant="poison"),
        *await store_texts(database, objects, 2, chunks=1, tenant="broken"),
    ]
    (objects / "broken-0.txt").write_bytes(b"%PDF-1.7 and nothing of one")
    (objects / "broken-1.txt").unlink()
    await store_texts(database, objects, good, chunks=1)
    with PoisonedGemini() as provider:
        environment = worker_environment(database, objects, provider, worker_concurrency=4, max_attempts=2)
        async with running_workers([environment] * 2, tmp_path), asyncio.timeout(PATIENCE + good * SECONDS_A_FILE):
            assert await all_ended(database) == {"COMPLETED": good, "FAILED": len(poison)}

    admin = await asyncpg.connect(database.admin_url)
    rows = await admin.fetch("SELECT * FROM module_embeddings_files_file WHERE status = 'FAILED' ORDER BY file_id")
    assert [row["file_id"] for row in rows] == poison
    assert all(row["error_code"] and row["error_message"] for row in rows)
    assert rows[0]["attempts"] == 2
    assert await admin.fetchval("SELECT count(*) FROM module_embeddings_file_chunk") == good
    tries = "SELECT max(attempts) FROM module_embeddings_files_file WHERE status = 'COMPLETED'"
    assert await admin.fetchval(tries) == 1
    await admin.close()
