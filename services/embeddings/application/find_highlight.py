"""Says where on its pages the text of a chunk stands."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.embeddings.application.ports import FilePages
from services.embeddings.domain.highlight import ChunkPlace


@dataclass(frozen=True, slots=True)
class FindHighlight:
    """The use case."""

    pages: FilePages

    async def __call__(self, scope: AccessScope, file_id: int, chunk_id: int) -> ChunkPlace:
        """The chunk with its pages. Raises NotFoundError ``FILE_NOT_FOUND``, ``CHUNK_NOT_FOUND``."""
        return await self.pages.get_chunk(scope, file_id, chunk_id)
