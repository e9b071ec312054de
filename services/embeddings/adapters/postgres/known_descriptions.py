"""Descriptions of images that are stored already, whichever file of the tenant they belong to."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from services.chassis.postgres.queries import load_query
from services.embeddings.adapters.postgres.spans import unpacked
from services.embeddings.domain.enrichment import ImageDescription


class PostgresKnownDescriptions:
    """Implements the KnownDescriptions port."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def find(self, tenant_id: str, describer: str, digests: Sequence[str]) -> dict[str, ImageDescription]:
        """The known descriptions of these images by this describer, without those that failed."""
        query = load_query("services.embeddings", "find_known_descriptions")
        rows = await self._pool.fetch(query, tenant_id, describer, [bytes.fromhex(digest) for digest in digests])
        return {row["digest"].hex(): ImageDescription(row["text"], spans=unpacked(row["spans"])) for row in rows}
