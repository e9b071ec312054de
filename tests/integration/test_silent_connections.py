"""Connections whose packets vanish, with nobody saying that they are over, stop nothing for long."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from services.chassis.postgres import connection
from services.chassis.postgres import pool as pool_module
from services.chassis.postgres.connection import connect
from services.chassis.postgres.faults import DATABASE_AWAY
from services.chassis.postgres.pool import create_pool, prepare_connection
from services.embeddings.bootstrap import build_worker
from services.embeddings.entrypoints import worker
from services.embeddings.settings import WorkerSettings
from tests.faults.links import PostgresLink
from tests.support.files import eventually
from tests.support.gemini_server import GeminiServer
from tests.support.postgres import Database
from tests.support.workers import all_ended, store_texts, worker_environment


@dataclass(frozen=True)
class Way:
    """A way to the database that can go silent, and the database at its end."""

    link: PostgresLink
    database: Database
    admin: asyncpg.Connection

    async def sessions(self) -> set[int]:
        """The server's processes that ours have a session with."""
        query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = 'cauce_embeddings'"
        return {row["pid"] for row in await self.admin.fetch(query)}


@pytest.fixture
async def way(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Way]:
    monkeypatch.setattr(connection, "SILENCE_SECONDS", 0.5)
    link = PostgresLink(urlsplit(database.admin_url).port or 0)
    await link.open()
    direct = f"127.0.0.1:{urlsplit(database.admin_url).port}"
    url = f"{database.embeddings_url.replace(direct, f'127.0.0.1:{link.port}')}?sslmode=disable"
    admin = await asyncpg.connect(database.admin_url)
    yield Way(link, replace(database, embeddings_url=url), admin)
    await admin.close()
    await link.close()


@pytest.fixture
async def pool(way: Way) -> AsyncIterator[asyncpg.Pool]:
    async with await create_pool(way.database.embeddings_url, application_name="test") as opened:
        yield opened


async def test_a_statement_on_a_silent_connection_fails_as_on_one_that_is_cut_and_the_next_finds_a_good_one(
    way: Way, pool: asyncpg.Pool
) -> None:
    await asyncio.gather(*(pool.fetchval("SELECT pg_sleep(0.1)") for _ in range(4)))
    assert len(await way.sessions()) == 4
    way.link.silence()
    with pytest.raises(DATABASE_AWAY):
        await pool.fetchval("SELECT 1")

    assert await asyncio.gather(*(pool.fetchval("SELECT 1") for _ in range(4))) == [1] * 4


async def test_a_connection_that_goes_silent_while_it_is_made_is_waited_for_no_longer_than_a_free_one(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def falling_silent(made: asyncpg.Connection) -> None:
        monkeypatch.setattr(pool_module, "prepare_connection", prepare_connection)
        way.link.silence()
        await prepare_connection(made)

    url = way.database.embeddings_url
    async with await create_pool(url, application_name="test", min_size=0, wait_seconds=0.2) as pool:
        await pool.expire_connections()
        monkeypatch.setattr(pool_module, "prepare_connection", falling_silent)
        asking = asyncio.create_task(pool.fetchval("SELECT 1"))
        await asyncio.wait({asking}, timeout=20)
        assert asking.done()
        with pytest.raises(DATABASE_AWAY):
            await asking

        assert await eventually(lambda: asked(pool)) == 1


async def asked(pool: asyncpg.Pool) -> int | None:
    with suppress(TimeoutError):
        return await pool.fetchval("SELECT 1")
    return None


async def test_what_the_server_works_on_takes_as_long_as_it_takes(way: Way, pool: asyncpg.Pool) -> None:
    assert await pool.fetchval("SELECT pg_sleep(2.5)::text") == ""
    async with way.admin.transaction():
        await way.admin.execute("LOCK TABLE module_embeddings_files_file")
        waiting = asyncio.create_task(pool.fetchval("SELECT count(*) FROM module_embeddings_files_file"))
        await asyncio.sleep(2.5)
    assert await waiting == 0


def rows(count: int) -> Iterator[tuple[str]]:
    return (("x" * 100_000,) for _ in range(count))


async def test_rows_that_vanish_on_their_way_hold_up_neither_the_writer_nor_a_lock(
    way: Way, pool: asyncpg.Pool
) -> None:
    await way.admin.execute("CREATE TABLE copied (text text); GRANT ALL ON copied TO cauce_embeddings")

    def falling_silent() -> Iterator[tuple[str]]:
        yield from rows(20)
        way.link.silence()
        yield from rows(1000)

    with pytest.raises(DATABASE_AWAY):
        async with pool.acquire() as writer, writer.transaction():
            await writer.execute("LOCK TABLE copied")
            await writer.copy_records_to_table("copied", records=falling_silent())
    await way.admin.execute("TRUNCATE copied")

    await pool.copy_records_to_table("copied", records=rows(20))
    assert await way.admin.fetchval("SELECT count(*) FROM copied") == 20


async def test_rows_that_nobody_takes_any_more_do_not_hold_up_a_writer_that_is_cut(
    way: Way, pool: asyncpg.Pool
) -> None:
    await way.admin.execute("CREATE TABLE copied (text text); GRANT ALL ON copied TO cauce_embeddings")
    await pool.copy_records_to_table("copied", records=rows(1))  # the table's types are known then
    async with way.admin.transaction():
        await way.admin.execute("LOCK TABLE copied")
        writing = asyncio.create_task(pool.copy_records_to_table("copied", records=rows(1000)))
        await eventually(lambda: way.admin.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"))
        way.link.cut()
        with pytest.raises(DATABASE_AWAY):
            await writing


async def test_a_silent_session_ends_at_the_server_too(way: Way, pool: asyncpg.Pool) -> None:
    with pytest.raises(DATABASE_AWAY):
        async with pool.acquire() as holder, holder.transaction():
            await holder.execute("LOCK TABLE module_embeddings_files_file")
            session = holder.get_server_pid()
            way.link.silence(for_good=True)
            await holder.execute("SELECT 1")

    async def is_over() -> bool:
        return session not in await way.sessions()

    await eventually(is_over)


async def test_a_network_that_acknowledges_nothing_ends_a_connection_by_itself(way: Way) -> None:
    opened = await connect(way.database.embeddings_url)
    end = opened._transport.get_extra_info("socket")
    assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    for name, value in connection.SOCKET.items():
        assert end.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
    await opened.close()


async def test_a_worker_whose_connections_go_silent_says_so_and_goes_on(
    way: Way, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "STALLED_AFTER_SECONDS", 0.1)
    stop = asyncio.Event()
    with GeminiServer() as provider:
        for name, value in worker_environment(way.database, tmp_path, provider).items():
            monkeypatch.setenv(name, value)
        async with build_worker(WorkerSettings()) as group:
            working = asyncio.create_task(group.run(stop))

            async def is_well() -> bool:
                return await group.fault() is None

            async def is_not_well() -> bool:
                return not await is_well()

            await store_texts(database, tmp_path, 1, chunks=1, tenant="before")
            assert await all_ended(database) == {"COMPLETED": 1}
            way.link.silence()
            await eventually(is_not_well)
            await store_texts(database, tmp_path, 2, chunks=1)
            assert await all_ended(database) == {"COMPLETED": 3}
            await eventually(is_well)
            stop.set()
            await working
    assert await way.admin.fetchval("SELECT max(attempts) FROM module_embeddings_files_file") == 1
