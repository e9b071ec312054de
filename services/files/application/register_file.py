"""Registers a file before its bytes, so that a caller knows its id at once."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.files.application.ports import Files
from services.files.domain.description import FileDescription
from services.files.domain.file import File


@dataclass(frozen=True, slots=True)
class RegisterFile:
    """The use case."""

    files: Files

    async def __call__(
        self, scope: AccessScope, description: FileDescription, idempotency_key: str | None = None
    ) -> File:
        """Return the new file, which waits for its bytes for a limited time, or the one that the same request made.

        Raises ConflictError ``IDEMPOTENCY_KEY_REUSED``.
        """
        return await self.files.add(scope, description, idempotency_key=idempotency_key)
