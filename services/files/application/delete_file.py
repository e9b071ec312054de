"""Deletes a file in whatever state it is."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.files.application.ports import Files


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """The use case."""

    files: Files

    async def __call__(self, scope: AccessScope, file_id: int) -> None:
        """Remove the file; its bytes, chunks and vectors follow. Raises NotFoundError ``FILE_NOT_FOUND``."""
        await self.files.delete(scope, file_id)
