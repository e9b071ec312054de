"""Vectors that were paid for already."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from services.chassis.models.space import Vector
from services.chassis.postgres.queries import load_query
from services.embeddings.domain.file_work import ClaimedFile

_PACKAGE = "services.embeddings"


class PostgresKnownVectors:
    """Reads vectors of the tenant's own chunks and of a file under way. Implements the KnownVectors port."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def find(self, claim: ClaimedFile, space_id: int, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """The known vectors of these text hashes in this space."""
        query = load_query(_PACKAGE, "find_known_vectors")
        rows = await self._pool.fetch(query, claim.tenant_id, space_id, hashes, claim.file_id)
        return {row["text_hash"]: row["embedding"].to_numpy() for row in rows}
