"""Worker processes, and stored files for them to work on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg

from deploy.embedded.process import Launch, tail
from services.chassis.postgres.pool import create_pool
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from tests.support.gemini_server import API_KEY, GeminiServer
from tests.support.postgres import Database
from tests.support.source_files import TENANT, uploaded

PATIENCE = 60.0
PARAGRAPH = "El texto {0} trata de la presión, del caudal y de la válvula. " * 11
"""About 780 characters: a chunk, with what it repeats of the one before."""


async def store_texts(database: Database, folder: Path, files: int, *, chunks: int, tenant: str = TENANT) -> list[int]:
    """Store and announce so many plain texts, each of as many chunks, none of them twice. Return their ids."""
    pool = await create_pool(database.embeddings_url, application_name="test")
    source = await asyncpg.connect(database.admin_url)
    file_ids: list[int] = []
    for number in range(files):
        path = folder / f"{tenant}-{number}.txt"
        path.write_text("\n\n".join(PARAGRAPH.format(f"{tenant}-{number}-{chunk}") for chunk in range(chunks)))
        file_ids.append(
            await source.fetchval(
                """INSERT INTO module_files_file
                   (tenant_id, name, media_type, state, revision, size_bytes, sha256, storage_key)
                   VALUES ($1, $2, 'text/plain', 'STORED', 1, $3, '\\x00', $2) RETURNING id""",
                tenant,
                path.name,
                path.stat().st_size,
            )
        )
    await PostgresFileMirror(pool).mark([uploaded(file_id) for file_id in file_ids])
    await source.close()
    await pool.close()
    return file_ids


def worker_environment(database: Database, folder: Path, provider: GeminiServer, **settings: object) -> dict[str, str]:
    """The settings of workers that embed with a provider; more of them by name."""
    return {
        "PATH": os.environ["PATH"],
        "CAUCE_EMBEDDINGS_DATABASE_URL": database.embeddings_url,
        "CAUCE_STORAGE_URL": folder.as_uri(),
        "CAUCE_EMBEDDING_SPACE": "gemini-embedding-001",
        "CAUCE_GEMINI_API_KEY": API_KEY,
        "CAUCE_GEMINI_BASE_URL": provider.url,
        "CAUCE_POLL_SECONDS": "0.05",
        **{f"CAUCE_{name.upper()}": str(value) for name, value in settings.items()},
    }


class WorkerProcess:
    """A running ``python -m services.embeddings.worker``, or another module of ours."""

    def __init__(
        self, environment: Mapping[str, str], log: Path, *, module: str = "services.embeddings.worker"
    ) -> None:
        self._log = log
        command = (sys.executable, "-P", "-m", module)
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                Launch(command, {}).arguments(signal.SIGKILL),
                env=dict(environment),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def says(self, event: str) -> bool:
        """Whether it logged the event. It has to be alive."""
        assert self.process.poll() is None, tail(self._log)
        return event in self._log.read_text()

    def kill(self) -> None:
        """SIGKILL, with all that it started, unless it has ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self) -> int:
        """SIGTERM; return its exit status."""
        self.process.terminate()
        return self.process.wait(timeout=PATIENCE)


@asynccontextmanager
async def running_workers(environments: Sequence[Mapping[str, str]], logs: Path) -> AsyncIterator[list[WorkerProcess]]:
    """A worker for each environment, all of them ready, and killed afterwards."""
    async with AsyncExitStack() as stack:
        workers = []
        for number, environment in enumerate(environments):
            worker = WorkerProcess(environment, logs / f"worker-{number}.log")
            stack.callback(worker.kill)
            workers.append(worker)
        for worker in workers:
            async with asyncio.timeout(PATIENCE):
                while not worker.says("worker_ready"):
                    await asyncio.sleep(0.02)
        yield workers


async def all_ended(database: Database) -> dict[str, int]:
    """Wait until no file waits or is worked on, and return how many ended in which status."""
    connection = await asyncpg.connect(database.admin_url)
    query = "SELECT status, count(*) FROM module_embeddings_files_file GROUP BY status"
    try:
        while True:
            counts = {row["status"]: row["count"] for row in await connection.fetch(query)}
            if not counts.keys() & {"PENDING", "PROCESSING"}:
                return counts
            await asyncio.sleep(0.05)
    finally:
        await connection.close()
