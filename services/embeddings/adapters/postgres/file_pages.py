"""What is stored of files for those who look at their pages. Every statement names the tenant."""

from __future__ import annotations

import asyncpg

from services.chassis.kernel.errors import NotFoundError
from services.chassis.kernel.scope import AccessScope
from services.chassis.postgres.queries import load_query
from services.embeddings.adapters.postgres.spans import unpacked
from services.embeddings.application.ports import StoredFile
from services.embeddings.domain.document import PageLayout
from services.embeddings.domain.errors import file_not_found
from services.embeddings.domain.highlight import ChunkPlace

_PACKAGE = "services.embeddings"
_MAX_ID = 2**63 - 1


class PostgresFilePages:
    """Implements the FilePages port."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def get_stored(self, scope: AccessScope, file_id: int) -> StoredFile:
        """The file. Raises NotFoundError ``FILE_NOT_FOUND``."""
        row = await self._pool.fetchrow(load_query(_PACKAGE, "find_stored_file"), scope.tenant_id, _possible(file_id))
        if row is None:
            raise file_not_found()
        return StoredFile(**row)

    async def get_chunk(self, scope: AccessScope, file_id: int, chunk_id: int) -> ChunkPlace:
        """A chunk and its pages. Raises NotFoundError ``FILE_NOT_FOUND``, ``CHUNK_NOT_FOUND``."""
        query = load_query(_PACKAGE, "find_chunk_place")
        rows = await self._pool.fetch(query, scope.tenant_id, _possible(file_id), _possible(chunk_id))
        if not rows:
            await self.get_stored(scope, file_id)
            raise NotFoundError(
                "CHUNK_NOT_FOUND",
                "the file has no such chunk",
                where="chunk_id",
                remedy="read its chunks again: those of a changed file are new ones",
            )
        first = rows[0]
        return ChunkPlace(
            chunk_id=first["chunk_id"],
            position=first["position"],
            page_from=first["page_from"],
            page_to=first["page_to"],
            char_start=first["char_start"],
            char_end=first["char_end"],
            pages=[
                (row["number"], PageLayout(row["width"], row["height"], row["unit"], unpacked(row["spans"])))
                for row in rows
                if row["number"] is not None
            ],
        )


def _possible(identifier: int) -> int:
    """The id, or one that nothing has when the column could not hold it."""
    return identifier if 0 < identifier <= _MAX_ID else 0
