"""The embedding spaces as the embeddings service recorded them."""

from __future__ import annotations

import asyncpg

from services.chassis.models.space import EmbeddingSpace
from services.chassis.postgres.faults import schema_missing
from services.chassis.postgres.queries import load_query
from services.search.application.ports import RecordedSpace


class PostgresSpaces:
    """Implements ``Spaces``."""

    def __init__(self, pool: asyncpg.Pool, *, timeout_seconds: float) -> None:
        self._pool = pool
        self._timeout = timeout_seconds

    async def find_active(self) -> RecordedSpace | None:
        """The active space, None before the first one is recorded.

        Raises:
            UnavailableError: ``SCHEMA_MISSING`` while the database is not migrated.
        """
        try:
            async with self._pool.acquire(timeout=self._timeout) as connection:
                row = await connection.fetchrow(load_query("services.search", "active_space"), timeout=self._timeout)
        except asyncpg.PostgresError as error:
            missing = schema_missing(error)
            if missing is None:
                raise
            # Connections made before the migration do not know the vector type.
            await self._pool.expire_connections()
            raise missing from error
        if row is None:
            return None
        return RecordedSpace(
            row["id"],
            EmbeddingSpace(
                name=row["name"],
                provider=row["provider"],
                model=row["model"],
                native_dimensions=row["native_dimensions"],
                convention=row["convention"],
            ),
            row["lexical"],
        )
