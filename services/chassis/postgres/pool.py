"""Connection pools with the codecs that every service needs: pgvector's types, and jsonb as Python objects."""

from __future__ import annotations

import json
from collections.abc import Mapping

import asyncpg
from pgvector.asyncpg import register_vector


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
    application_name: str,
    min_size: int = 1,
    max_size: int = 10,
    server_settings: Mapping[str, str] | None = None,
    reset_on_release: bool = True,
) -> asyncpg.Pool:
    """Open a pool.

    Args:
        url: ``postgresql://role@host:port/database``.
        application_name: shown in ``pg_stat_activity``.
        min_size: connections opened at once.
        max_size: the most that are ever open; callers beyond it wait.
        server_settings: session settings. Only these survive the reset that a pool does on release, a ``SET`` does not.
        reset_on_release: False saves that round trip, where nothing changes its session outside a transaction.
    """
    return await asyncpg.create_pool(
        url,
        min_size=min_size,
        max_size=max_size,
        init=prepare_connection,
        # Compiling a plan takes longer than any statement here; the planner's guesses at joins of arrays say otherwise.
        server_settings={"application_name": application_name, "jit": "off", **(server_settings or {})},
        timeout=10,
        reset=None if reset_on_release else _keep_session,
    )


async def _keep_session(_: asyncpg.Connection) -> None:
    """What asyncpg does besides, ending an open transaction, stays."""
