"""Has a file that ended processed again."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.kernel.errors import ConflictError
from services.chassis.kernel.scope import AccessScope
from services.files.application.ports import Files
from services.files.domain.file import File


@dataclass(frozen=True, slots=True)
class RetryFile:
    """The use case."""

    files: Files

    async def __call__(self, scope: AccessScope, file_id: int) -> File:
        """Ask for the file's processing under a new revision, and return it; of two that ask at once, one is refused.

        Raises:
            NotFoundError: ``FILE_NOT_FOUND``.
            ConflictError: the file has no bytes, or it has not ended; ``NOT_FINISHED`` also when it changed meanwhile.
        """
        file = await self.files.get(scope, file_id)
        file.require_retryable()
        if raised := await self.files.raise_revision(scope, file):
            return raised
        raise ConflictError("NOT_FINISHED", "the file has just changed", where="file_id", remedy="look at it again")
