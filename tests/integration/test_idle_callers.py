"""Callers who keep a connection and do nothing with it lose it; those who are only slow are served."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.files import FilesServer, eventually, running_files
from tests.support.postgres import Database

CONTENT = b"0123456789abcdef" * 500_000
OK = b"HTTP/1.1 200 OK\r\n"


@asynccontextmanager
async def asked_for(files: FilesServer, path: str) -> AsyncIterator[socket.socket]:
    """A connection whose kernel keeps little, on which the path is being answered and nothing more is read."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, ("127.0.0.1", files.port))
        await loop.sock_sendall(connection, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert await loop.sock_recv(connection, len(OK)) == OK
        yield connection


async def test_downloads_leave_places_for_other_requests(database: Database, tmp_path: Path) -> None:
    async with running_files(database, tmp_path, max_downloads=1) as files:
        path = f"/files/{await files.upload(CONTENT)}/content"
        async with asked_for(files, path):
            refused = await files.http.get(path)
            assert (refused.status_code, refused.json()["code"]) == (503, "TOO_MANY_REQUESTS")
            assert (await files.http.get("/files")).status_code == 200


async def test_a_caller_who_does_not_read_loses_the_connection_and_another_gets_the_place(
    database: Database, tmp_path: Path
) -> None:
    async with running_files(database, tmp_path, max_downloads=1, caller_idle_seconds=0.3) as files:
        path = f"/files/{await files.upload(CONTENT)}/content"
        async with asked_for(files, path):

            async def is_served() -> bool:
                return (await files.http.get(path)).content == CONTENT

            await eventually(is_served)


async def test_a_caller_who_reads_slowly_gets_all(database: Database, tmp_path: Path) -> None:
    async with running_files(database, tmp_path, caller_idle_seconds=0.5) as files:
        path = f"/files/{await files.upload(CONTENT)}/content"
        async with asked_for(files, path) as connection:
            loop = asyncio.get_running_loop()
            received = bytearray()
            for _ in range(20):
                received += await loop.sock_recv(connection, 64 * 1024)
                await asyncio.sleep(0.1)
            head = received.index(b"\r\n\r\n") + 4
            while len(received) - head < len(CONTENT):
                piece = await loop.sock_recv(connection, 1024 * 1024)
                assert piece
                received += piece

        assert received[head:] == CONTENT
