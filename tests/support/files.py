"""The files service on a real socket of this process's loop, and clients that may misbehave."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import uvicorn
from fastapi import FastAPI

from services.chassis.http.connection import ServerConfig
from services.files.bootstrap import build_app
from services.files.settings import FilesSettings
from tests.support.postgres import Database

TENANT = "acme"
NO_BROKER = "127.0.0.1:1"
PATIENCE = 60.0


@dataclass(frozen=True)
class FilesServer:
    """A running service, what it stores in, and a client of it."""

    url: str
    port: int
    folder: Path
    database: Database
    http: httpx2.AsyncClient

    def objects(self) -> list[str]:
        """Every object that storage holds now, whole or not."""
        return sorted(
            str(path.relative_to(self.folder)) for path in (self.folder / "files").rglob("*") if path.is_file()
        )

    async def register(self, name: str = "a.txt", **body: Any) -> int:
        """Register a file. Return its id."""
        answer = await self.http.post("/files", json={"name": name, **body})
        assert answer.status_code == 201, answer.text
        file_id: int = answer.json()["file_id"]
        return file_id

    async def upload(self, content: bytes = b"hello", name: str = "a.txt") -> int:
        """Register a file and send its bytes. Return its id."""
        file_id = await self.register(name)
        answer = await self.http.put(f"/files/{file_id}/content", content=content)
        assert answer.status_code == 202, answer.text
        return file_id

    async def file(self, file_id: int) -> dict[str, Any]:
        """The file as the service shows it."""
        answer = await self.http.get(f"/files/{file_id}")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def events(self) -> list[tuple[str, dict[str, Any]]]:
        """The outbox, oldest first: event name and payload."""
        rows = await self.query("SELECT type, payload FROM module_files_outbox ORDER BY position")
        return [(row["type"].split(".")[2], json.loads(row["payload"])) for row in rows]

    async def query(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Ask the database as its administrator."""
        connection = await asyncpg.connect(self.database.admin_url)
        try:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *arguments)
            return rows
        finally:
            await connection.close()

    async def process(self, file_id: int, status: str, revision: int, **columns: Any) -> None:
        """Do as the embeddings service does: publish what became of a file."""
        values = {"file_id": file_id, "tenant_id": TENANT, "name": "a.txt", "status": status, "revision": revision}
        values |= {"outcome": "INDEXED", "finished_at": None} if status == "COMPLETED" else {}
        values |= columns
        names = ", ".join(values)
        places = ", ".join(f"${number}" for number in range(1, len(values) + 1))
        changes = ", ".join(f"{name} = excluded.{name}" for name in values)
        await self.query(
            f"INSERT INTO module_embeddings_files_file ({names}) VALUES ({places})"
            f" ON CONFLICT (file_id) DO UPDATE SET {changes}, updated_at = clock_timestamp()",
            *values.values(),
        )


def settings_for(database: Database, folder: Path, **changes: Any) -> FilesSettings:
    """Settings of a service of one tenant, without a broker unless ``changes`` names one."""
    values: dict[str, Any] = {
        "files_database_url": database.files_url,
        "storage_url": folder.as_uri(),
        "tenant": TENANT,
        "kafka_bootstrap": NO_BROKER,
        "upkeep_seconds": 0.1,
        "status_poll_seconds": 0.05,
    }
    return FilesSettings(**(values | changes))


@asynccontextmanager
async def running_files(database: Database, folder: Path, **changes: Any) -> AsyncIterator[FilesServer]:
    """The service, stopped at the end."""
    async with (
        running_app(build_app(settings_for(database, folder, **changes))) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=PATIENCE) as http,
    ):
        yield FilesServer(url, int(url.rpartition(":")[2]), folder, database, http)


@asynccontextmanager
async def running_app(app: FastAPI) -> AsyncIterator[str]:
    """An application on a socket of this process's loop: its address. Stopped at the end."""
    async with app.router.lifespan_context(app):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = uvicorn.Server(ServerConfig(app, app.state.http_settings, timeout_graceful_shutdown=2))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            await eventually(lambda: _true(server.started or serving.done()))
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                app.state.stopping = True
                server.should_exit = True
                await serving


class Link:
    """The way to a server, which can be cut and mended. ``port`` stays the same."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def mend(self) -> None:
        """Let connections through."""
        self._listener = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Break every connection and refuse new ones."""
        assert self._listener is not None
        self._listener.close()
        for writer in self._open:
            writer.transport.abort()
        await self._listener.wait_closed()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        ends = {writer, far_writer}
        self._open |= ends
        try:
            await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
        finally:
            self._open -= ends


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def eventually(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Wait until the condition holds, and return what it says. Patience ends only when something is broken."""
    async with asyncio.timeout(PATIENCE):
        while not (answer := await condition()):
            await asyncio.sleep(0.02)
        return answer


async def _true(value: bool) -> bool:
    return value


@asynccontextmanager
async def raw_request(
    server: FilesServer, head: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which a request's head has been sent, and nothing of its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    """The status and the JSON body of an answer with a length."""
    async with asyncio.timeout(PATIENCE):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        return int(head.split(" ")[1]), json.loads(await reader.readexactly(length))
