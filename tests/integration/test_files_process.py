"""The files service as its own process: killed in the middle of an upload, and stopped with a stream open."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from tests.support.broker import Kafka
from tests.support.files import PATIENCE, TENANT, FilesServer, eventually, raw_request
from tests.support.ports import free_port
from tests.support.postgres import Database


@asynccontextmanager
async def process(
    database: Database, folder: Path, kafka: Kafka
) -> AsyncIterator[tuple[asyncio.subprocess.Process, FilesServer]]:
    """``python -m services.files``, ready; killed at the end if it still runs."""
    port = free_port()
    environment = os.environ | {
        "CAUCE_PORT": str(port),
        "CAUCE_TENANT": TENANT,
        "CAUCE_FILES_DATABASE_URL": database.files_url,
        "CAUCE_STORAGE_URL": folder.as_uri(),
        **kafka.environment,
        "CAUCE_UPKEEP_SECONDS": "0.1",
        "CAUCE_UPLOAD_IDLE_SECONDS": "2",
        "CAUCE_STORAGE_GRACE_SECONDS": "0",
    }
    running = await asyncio.create_subprocess_exec(sys.executable, "-m", "services.files", env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx2.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=PATIENCE) as http:

            async def is_ready() -> bool:
                assert running.returncode is None
                try:
                    return (await http.get("/health/ready")).status_code == 200
                except httpx2.TransportError:
                    return False

            await eventually(is_ready)
            yield running, FilesServer(url, port, folder, database, http)
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


async def test_a_killed_service_leaves_nothing_of_an_upload_and_stops_at_a_signal(
    database: Database, tmp_path: Path, kafka: Kafka
) -> None:
    folder = tmp_path / "objects"
    async with process(database, folder, kafka) as (running, files):
        file_id = await files.register()
        head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 20000000"
        async with raw_request(files, head) as (_, writer):
            writer.write(b"x" * 15_000_000)

            async def has_written() -> bool:
                return any("#" in name for name in files.objects())

            await eventually(has_written)
            running.kill()
            await running.wait()
    assert files.objects() != []

    async with process(database, folder, kafka) as (running, files):

        async def is_over() -> bool:
            return (await files.file(file_id))["error_code"] == "UPLOAD_INCOMPLETE" and files.objects() == []

        await eventually(is_over)
        waiting = await files.register()
        async with files.http.stream("GET", f"/files/{waiting}/events") as events:
            lines = events.aiter_lines()
            assert await anext(lines) == "event: status"
            running.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                assert await running.wait() in {0, -signal.SIGTERM}
                assert [line async for line in lines][-1] in {"", ":"}
