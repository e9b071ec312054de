"""Callers who keep a connection and do nothing with it lose it; those who are only slow are served."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from tests.support.files import PATIENCE, FilesServer, eventually, raw_request, read_answer, running_files
from tests.support.postgres import Database

CONTENT = b"0123456789abcdef" * 500_000
WHOLE = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
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
    async with running_files(database, tmp_path, max_downloads=1, caller_idle_seconds=1.0) as files:
        path = f"/files/{await files.upload(CONTENT)}/content"
        async with asked_for(files, path):

            async def is_served() -> bool:
                return (await files.http.get(path)).content == CONTENT

            await eventually(is_served)


@pytest.mark.parametrize(("places", "is_whole"), [(1, False), (2, True)], ids=["none is free", "one is free"])
async def test_a_slow_reader_loses_the_place_to_the_next_where_none_is_free(
    database: Database, tmp_path: Path, places: int, is_whole: bool
) -> None:
    endless_hurry = {"upload_grace_seconds": 0, "upload_least_rate": 10**12}
    async with running_files(database, tmp_path, max_downloads=places, **endless_hurry) as files:
        path = f"/files/{await files.upload(CONTENT)}/content"
        async with asked_for(files, path) as connection:
            assert (await files.http.get(path)).content == CONTENT
            received = bytearray()
            with suppress(ConnectionResetError):
                while len(received) < len(CONTENT):
                    piece = await asyncio.get_running_loop().sock_recv(connection, 1024 * 1024)
                    if not piece:
                        break
                    received += piece
        assert (len(received) >= len(CONTENT)) is is_whole
        # No place was lost on the way.
        assert (await files.http.get(path)).content == CONTENT


async def test_a_caller_who_reads_slowly_gets_all(database: Database, tmp_path: Path) -> None:
    async with running_files(database, tmp_path, caller_idle_seconds=1.5) as files:
        path = f"/files/{await files.upload(CONTENT)}/content"
        async with asked_for(files, path) as connection:
            loop = asyncio.get_running_loop()
            received = bytearray()
            for _ in range(40):
                received += await loop.sock_recv(connection, 64 * 1024)
                await asyncio.sleep(0.1)
            head = received.index(b"\r\n\r\n") + 4
            while len(received) - head < len(CONTENT):
                piece = await loop.sock_recv(connection, 1024 * 1024)
                assert piece
                received += piece

        assert received[head:] == CONTENT


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of a connection on which nothing is answered."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await reader.read(1) == b""
        except ConnectionResetError:
            return True


async def test_a_header_without_an_end_loses_the_connection(database: Database, tmp_path: Path) -> None:
    async with running_files(database, tmp_path, caller_idle_seconds=1.0) as files:

        async def is_ended_after(sent: bytes) -> bool:
            reader, writer = await asyncio.open_connection("127.0.0.1", files.port)
            writer.write(sent)
            if sent == WHOLE:
                assert (await read_answer(reader))[0] == 200
                writer.write(b"GET / HT")
            try:
                return await is_ended(reader)
            finally:
                writer.close()

        assert all(await asyncio.gather(*map(is_ended_after, (b"", b"GET / HT", WHOLE))))


async def test_a_kept_connection_a_stream_and_a_slow_body_last_longer_than_a_header(
    database: Database, tmp_path: Path
) -> None:
    async with running_files(database, tmp_path, caller_idle_seconds=1.0) as files:
        file_id = await files.register()
        upload = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 2"
        async with (
            raw_request(files, upload) as (uploading, upload_writer),
            files.http.stream("GET", f"/files/{file_id}/events") as events,
        ):
            kept, kept_writer = await asyncio.open_connection("127.0.0.1", files.port)
            kept_writer.write(WHOLE)
            assert (await read_answer(kept))[0] == 200
            upload_writer.write(b"x")
            await asyncio.sleep(3)  # a look, another one, and some more

            kept_writer.write(WHOLE)
            assert (await read_answer(kept))[0] == 200
            kept_writer.close()
            upload_writer.write(b"x")
            assert (await read_answer(uploading))[0] == 202
            async for line in events.aiter_lines():
                if "PENDING" in line:
                    break


async def test_idle_connections_make_room_for_a_probe_and_requests_under_way_go_on(
    database: Database, tmp_path: Path
) -> None:
    async with running_files(database, tmp_path, max_connections=10) as files, AsyncExitStack() as stack:
        file_id = await files.register()
        upload = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 1"
        uploading, writer = await stack.enter_async_context(raw_request(files, upload))
        idle = []
        for _ in range(30):
            reader, idle_writer = await asyncio.open_connection("127.0.0.1", files.port)
            stack.callback(idle_writer.close)
            idle_writer.write(b"GET / HTTP/1.1\r\nHost")
            idle.append(reader)

        async with httpx2.AsyncClient(base_url=files.url, trust_env=False, verify=False) as probe:
            assert (await probe.get("/health/live")).status_code == 200
        assert all([await is_ended(reader) for reader in idle[:20]])
        writer.write(b"x")
        assert (await read_answer(uploading))[0] == 202
