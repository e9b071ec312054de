"""Worker processes before a provider that allows little, or answers badly."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg

from tests.support.postgres import Database
from tests.support.scarce_gemini import ScarceGemini
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
