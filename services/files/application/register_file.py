"""Registers a file before its bytes, so that a caller knows its id at once."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.files.application.ports import Files
from services.files.domain.description import FileDescription


@dataclass(frozen=True, slots=True)
class RegisterFile:
    """The use case."""

    files: Files

    async def __call__(self, scope: AccessScope, description: FileDescription) -> int:
        """Return the id of the new file, which waits for its bytes for a limited time."""
        return await self.files.add(scope, description)
