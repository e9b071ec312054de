"""Processes end within the stated time after SIGTERM, whatever the database, the broker or the provider do."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import httpx2
import psutil
import pytest

from deploy.embedded.broker import EmbeddedBroker
from services.embeddings.bootstrap import build_worker
from services.embeddings.settings import WorkerSettings
from tests.support.files import NO_BROKER, eventually
from tests.support.gemini_server import GeminiServer
from tests.support.ports import free_port
from tests.support.postgres import Database, PostgresServer
from tests.support.workers import WorkerProcess, store_texts, worker_environment


def environment(database: Database, folder: Path, bootstrap: str) -> dict[str, str]:
    """Of any service. The janitor asks the database all the time."""
    return {
        "PATH": os.environ["PATH"],
        "CAUCE_FILES_DATABASE_URL": database.files_url,
        "CAUCE_EMBEDDINGS_DATABASE_URL": database.embeddings_url,
        "CAUCE_SEARCH_DATABASE_URL": database.search_url,
        "CAUCE_STORAGE_URL": folder.as_uri(),
        "CAUCE_KAFKA_BOOTSTRAP": bootstrap,
        "CAUCE_KAFKA_IDEMPOTENT_PRODUCER": "false",
        "CAUCE_TENANT": "acme",
        "CAUCE_UPKEEP_SECONDS": "0.1",
        "CAUCE_POLL_SECONDS": "0.05",
        "CAUCE_MEASURE_SECONDS": "0.1",
        "CAUCE_SEARCH_SPACE_POLL_SECONDS": "0.1",
        "CAUCE_SHUTDOWN_SECONDS": "0.3",
    }


@asynccontextmanager
async def running(settings: Mapping[str, str], logs: Path, *names: str) -> AsyncIterator[dict[str, Running]]:
    """Processes by name, each of them at work."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False, timeout=60))
        processes: dict[str, Running] = {}
        for name in names:
            port = free_port()
            own = {"CAUCE_WORKER_PORT" if name.endswith("worker") else "CAUCE_PORT": str(port)}
            process = WorkerProcess({**settings, **own}, logs / f"{name}.log", module=f"services.{name}")
            stack.callback(process.kill)
            processes[name] = Running(process, f"http://127.0.0.1:{port}", http)
        for one in processes.values():
            await eventually(one.works)
        yield processes


@dataclass(frozen=True)
class Running:
    """A process, and how to ask it."""

    process: WorkerProcess
    url: str
    http: httpx2.AsyncClient

    async def works(self) -> bool:
        """Whether it has all but a broker."""
        assert self.process.process.poll() is None
        try:
            ready = await self.http.get(f"{self.url}/health/ready")
        except httpx2.TransportError:
            return False
        return not {"database", "worker", "embedding_space"} & ready.json()["faults"].keys()

    async def is_ready(self) -> bool:
        """Whether it has everything."""
        return (await self.http.get(f"{self.url}/health/ready")).status_code == 200

    async def end(self) -> int:
        """Send SIGTERM, and return the status that it ends with."""
        self.process.process.terminate()
        return await asyncio.to_thread(self.process.process.wait, 60)


async def test_every_process_ends_while_the_database_takes_connections_and_answers_nobody(
    postgres_server: PostgresServer, database: Database, tmp_path: Path
) -> None:
    names = ("files", "embeddings", "embeddings.worker", "search")
    async with running(environment(database, tmp_path, NO_BROKER), tmp_path, *names) as processes:
        with postgres_server.hung():
            files, search = processes["files"], processes["search"]
            asked = [
                asyncio.create_task(files.http.get(f"{files.url}/files")),
                asyncio.create_task(
                    search.http.post(f"{search.url}/api/web/embeddings/files/search", json={"query": "one"})
                ),
            ]
            await asyncio.sleep(1)  # until each has asked the database
            statuses = await asyncio.gather(*(each.end() for each in processes.values()))
            await asyncio.gather(*asked, return_exceptions=True)
    assert dict(zip(names, statuses, strict=True)) == dict.fromkeys(names, -signal.SIGTERM) | {"embeddings.worker": 0}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """One of its own, which others do not miss while it is stopped."""
    server = EmbeddedBroker(free_port())
    server.start()
    yield server
    server.stop()


async def test_the_processes_that_talk_to_a_broker_end_while_it_answers_nobody(
    broker: EmbeddedBroker, database: Database, tmp_path: Path
) -> None:
    names = ("files", "embeddings")
    async with running(environment(database, tmp_path, broker.bootstrap), tmp_path, *names) as processes:
        await eventually(processes["embeddings"].is_ready)
        hung = psutil.Process(broker.pid)
        hung.suspend()
        try:
            files = processes["files"]
            stored = await files.http.post(f"{files.url}/files", files={"file": ("a.txt", b"one", "text/plain")})
            assert stored.status_code == 202
            statuses = await asyncio.gather(*(each.end() for each in processes.values()))
        finally:
            hung.resume()
    assert statuses == [-signal.SIGTERM] * len(names)


@asynccontextmanager
async def worker_asked_to_end(
    database: Database, folder: Path, provider: GeminiServer, when: Callable[[], Awaitable[bool]]
) -> AsyncIterator[None]:
    """A worker that is asked to end when it is as far as that, and has ended at the end of the context."""
    settings = worker_environment(database, folder, provider, shutdown_seconds=0.3)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in settings.items():
            environment.setenv(name, value)
        workers = build_worker(WorkerSettings())
    stop = asyncio.Event()
    async with asyncio.timeout(60), workers as group:
        working = asyncio.create_task(group.run(stop))
        await eventually(when)
        stop.set()
        await working
        yield


async def test_a_worker_gives_back_what_a_silent_provider_does_not_answer(database: Database, tmp_path: Path) -> None:
    await store_texts(database, tmp_path, 1, chunks=1)
    with GeminiServer() as provider:
        provider.then_hang()

        async def asked() -> bool:
            return bool(provider.requests)

        async with worker_asked_to_end(database, tmp_path, provider, asked):
            admin = await asyncpg.connect(database.admin_url)
            row = await admin.fetchrow("SELECT status, attempts FROM module_embeddings_files_file")
            await admin.close()
    assert tuple(row) == ("PENDING", 0)


async def test_a_worker_ends_while_others_hold_the_table_that_it_works_on(database: Database, tmp_path: Path) -> None:
    admin = await asyncpg.connect(database.admin_url)

    async def waits() -> bool:
        waiting = await admin.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(waiting)

    with GeminiServer() as provider:
        async with admin.transaction():
            await admin.execute("LOCK TABLE module_embeddings_files_file IN ACCESS EXCLUSIVE MODE")
            async with worker_asked_to_end(database, tmp_path, provider, waits):
                pass
    await admin.close()
