"""The chunks of one file on given pages: the same answer every time, without a model."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.search.application.ports import FileChunkIndex
from services.search.domain.criteria import FileChunksCriteria
from services.search.domain.results import FileChunks


@dataclass(frozen=True, slots=True)
class ReadFileChunks:
    """Reads stored chunks in the order of the text."""

    index: FileChunkIndex

    async def __call__(self, scope: AccessScope, criteria: FileChunksCriteria) -> FileChunks:
        """Read. Raises NotFoundError ``FILE_NOT_FOUND`` for a file that the caller cannot see."""
        return await self.index.get_chunks(scope, criteria)
