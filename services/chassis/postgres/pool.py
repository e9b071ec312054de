"""Connection pools with the codecs that every service needs: pgvector as numpy, jsonb as Python objects."""

from __future__ import annotations

import json
from collections.abc import Mapping

import asyncpg
import numpy as np
import numpy.typing as npt

VECTOR_HEADER_BYTES = 4


def encode_vector(vector: npt.NDArray[np.float32]) -> bytes:
    """pgvector's binary format: dimensions and an unused word, then big-endian float32 numbers."""
    return len(vector).to_bytes(2, "big") + b"\x00\x00" + vector.astype(">f4").tobytes()


def decode_vector(data: bytes) -> npt.NDArray[np.float32]:
    """Inverse of ``encode_vector``."""
    return np.frombuffer(data, dtype=">f4", offset=VECTOR_HEADER_BYTES).astype(np.float32)


async def prepare_connection(connection: asyncpg.Connection) -> None:
    """Register the codecs on a new connection. Without the vector extension there is no vector codec."""
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    schema = await connection.fetchval(
        "SELECT n.nspname FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace WHERE t.typname = 'vector'"
    )
    if schema is not None:
        await connection.set_type_codec(
            "vector", encoder=encode_vector, decoder=decode_vector, schema=schema, format="binary"
        )


async def create_pool(
    url: str,
    *,
    application_name: str,
    min_size: int = 1,
    max_size: int = 10,
    server_settings: Mapping[str, str] | None = None,
) -> asyncpg.Pool:
    """Open a pool.

    Args:
        url: ``postgresql://role@host:port/database``.
        application_name: shown in ``pg_stat_activity``.
        min_size: connections opened at once.
        max_size: the most that are ever open; callers beyond it wait.
        server_settings: session settings. Only these survive the reset that a pool does on release, a ``SET`` does not.
    """
    return await asyncpg.create_pool(
        url,
        min_size=min_size,
        max_size=max_size,
        init=prepare_connection,
        server_settings={"application_name": application_name, **(server_settings or {})},
        timeout=10,
    )
