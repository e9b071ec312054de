"""Vectors that were paid for already."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from services.chassis.models.space import Vector
from services.chassis.postgres.queries import load_query

_PACKAGE = "services.embeddings"


class PostgresKnownVectors:
    """Reads vectors of the tenant's own chunks. Implements the KnownVectors port."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def find(self, tenant_id: str, space_id: int, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """The known vectors of these text hashes in this space."""
        rows = await self._pool.fetch(load_query(_PACKAGE, "find_known_vectors"), tenant_id, space_id, hashes)
        return {row["text_hash"]: row["embedding"].to_numpy() for row in rows}
