"""The passages of files that mean nearly the same as a question."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.search.application.active_space import ActiveSpace
from services.search.application.ports import FileChunkIndex
from services.search.application.query_vectors import QueryVectors
from services.search.domain.criteria import FileChunkSearchCriteria
from services.search.domain.results import Executed, FileChunkSearchResult


@dataclass(frozen=True, slots=True)
class SearchFileChunks:
    """Embeds the question in the active space and compares it with the chunks of that space only."""

    active_space: ActiveSpace
    query_vectors: QueryVectors
    index: FileChunkIndex

    async def __call__(self, scope: AccessScope, criteria: FileChunkSearchCriteria) -> FileChunkSearchResult:
        """Search.

        Raises:
            NotFoundError: ``FILE_NOT_FOUND`` for a ``file_id`` that the caller cannot see.
            UnavailableError: no space is active, or the question cannot be embedded now.
        """
        space = self.active_space.require()
        vector, cached = await self.query_vectors.embed(space.embedder, criteria.query_text)
        nearest = await self.index.nearest(scope, space.space_id, vector, criteria)
        executed = Executed("semantic", space.embedder.space.name, nearest.strategy, cached)
        return FileChunkSearchResult(nearest.matches, executed)
