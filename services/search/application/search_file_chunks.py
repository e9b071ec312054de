"""The passages of files that mean nearly the same as a question, or share its words."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.search.application.ports import FileChunkIndex
from services.search.application.retrieval import Prepared, Retrieval
from services.search.domain.criteria import FileChunkSearchCriteria
from services.search.domain.results import FileChunkSearchResult


@dataclass(frozen=True, slots=True)
class SearchFileChunks:
    """Looks for the question in the chunks of the active space only, by its meaning, its words or both."""

    retrieval: Retrieval
    index: FileChunkIndex

    async def __call__(
        self, scope: AccessScope, criteria: FileChunkSearchCriteria, prepared: Prepared | None = None
    ) -> FileChunkSearchResult:
        """Search; ``prepared`` is the question when it is looked up elsewhere as well.

        Raises:
            NotFoundError: ``FILE_NOT_FOUND`` for a file of the filter that the caller cannot see.
            InvalidInputError: ``CURSOR_MISMATCH``.
            ConflictError: ``CURSOR_EXPIRED``.
            UnavailableError: no space is active, or a leg that the mode cannot do without cannot run now.
        """
        return FileChunkSearchResult(*await self.retrieval(scope, criteria, self.index, prepared))
