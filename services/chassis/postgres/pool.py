"""Connection pools with the codecs that every service needs: pgvector's types, and jsonb as Python objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import asyncpg
from asyncpg.pool import PoolAcquireContext
from opentelemetry import metrics
from pgvector.asyncpg import register_vector

from services.chassis.postgres.connection import SESSION, Connection
from services.chassis.postgres.faults import DATABASE_AWAY, DatabaseUnreachableError, database_refused, schema_missing

FIRST_TRY_SECONDS = 2.0
"""How long the opening of a pool waits to find out whether the database refuses us."""
RELEASE_SECONDS = 2.0
"""How long a connection that comes back waits for the server to take the cancellation of its statement."""
CLOSE_SECONDS = 0.5
"""How long the closing of a pool waits for those that hold a connection, and for the server."""

_waiting = metrics.get_meter("cauce").create_up_down_counter(
    "cauce.database.waiting", unit="{call}", description="Callers that wait for a connection of the pool"
)


class _Pool(asyncpg.Pool):  # type: ignore[misc]
    """Counts who waits for a connection, and lets nobody wait for ever who does not say so; its end least of all."""

    __slots__ = ("_application_name", "_wait_seconds")

    def __init__(self, *arguments: Any, application_name: str, wait_seconds: float | None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._application_name = application_name
        self._wait_seconds = wait_seconds

    def acquire(self, *, timeout: float | None = None) -> PoolAcquireContext:
        return super().acquire(timeout=self._wait_seconds if timeout is None else timeout)

    async def _acquire(self, timeout: float | None) -> Any:
        attributes = {"pool": self._application_name}
        _waiting.add(1, attributes)
        try:
            return await super()._acquire(timeout)
        except TimeoutError:
            raise
        except OSError as error:
            raise DatabaseUnreachableError(f"{type(error).__name__}: {error}") from error
        finally:
            _waiting.add(-1, attributes)

    async def release(self, connection: Any, *, timeout: float | None = None) -> None:
        await super().release(connection, timeout=RELEASE_SECONDS if timeout is None else timeout)

    def drop_idle(self) -> None:
        """Close what nobody uses now: what silenced one connection has silenced more, and nobody should find out."""
        for holder in self._holders:
            if holder.is_idle():
                holder.terminate()

    async def close(self) -> None:
        with suppress(TimeoutError):  # then it has been terminated
            async with asyncio.timeout(CLOSE_SECONDS):
                await super().close()


async def prepare_connection(connection: asyncpg.Connection) -> None:
    """Register the codecs on a new connection. Where there is no vector extension there is no vector codec."""
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    schema = await connection.fetchval(
        "SELECT n.nspname FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace WHERE t.typname = 'vector'"
    )
    if schema is not None:
        await register_vector(connection, schema=schema)


async def create_pool(
    url: str,
    *,
    where: str | None = None,
    application_name: str,
    min_size: int = 1,
    max_size: int = 10,
    server_settings: Mapping[str, str] | None = None,
    reset_on_release: bool = True,
    wait_seconds: float | None = None,
    statement_seconds: float | None = None,
) -> asyncpg.Pool:
    """Open a pool. With ``min_size`` 0 a database that is away, or not migrated, is no fault.

    Args:
        url: ``postgresql://role@host:port/database``.
        where: the setting that it comes from, for errors.
        application_name: shown in ``pg_stat_activity``.
        min_size: connections opened at once.
        max_size: the most that are ever open; callers beyond it wait.
        server_settings: session settings. Only these survive the reset that a pool does on release, a ``SET`` does not.
        reset_on_release: False saves that round trip, where nothing changes its session outside a transaction.
        wait_seconds: the longest wait for a connection, where a caller does not say; then TimeoutError. None: for ever.
        statement_seconds: the longest that a statement may take, likewise.

    Raises:
        ConfigurationError: ``DATABASE_REFUSED`` for a wrong password, ``DATABASE_ADDRESS_INVALID``.
    """

    async def prepare(connection: Connection) -> None:
        connection.watch(url, pool.drop_idle)
        try:
            with connection.watched():
                await prepare_connection(connection)
        except BaseException:
            # The driver would take leave of the server, and wait for ever for one that has gone silent.
            connection.terminate()
            raise

    pool = _Pool(
        url,
        application_name=application_name,
        wait_seconds=wait_seconds,
        connection_class=Connection,
        record_class=asyncpg.Record,
        max_queries=50_000,
        max_inactive_connection_lifetime=300.0,
        loop=None,
        command_timeout=statement_seconds,
        min_size=min_size,
        max_size=max_size,
        init=prepare,
        # Compiling a plan takes longer than any statement here; the planner's guesses at joins of arrays say otherwise.
        server_settings={**SESSION, "application_name": application_name, "jit": "off", **(server_settings or {})},
        timeout=10,
        reset=None if reset_on_release else _keep_session,
    )
    await pool
    try:
        async with pool.acquire(timeout=FIRST_TRY_SECONDS):
            return pool
    except (*DATABASE_AWAY, asyncpg.PostgresError, ValueError) as error:
        refusal = database_refused(error, where)
        if refusal and not schema_missing(error):
            raise refusal from error
    return pool


async def _keep_session(_: asyncpg.Connection) -> None:
    """What asyncpg does besides, ending an open transaction, stays."""
