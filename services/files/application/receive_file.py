"""Registers a file with its bytes in one go. There is no file before they are whole, so a refusal leaves none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.files.application.ports import Files
from services.files.application.store_content import StoreContent
from services.files.domain.description import FileDescription
from services.files.domain.file import File, StoredContent


@dataclass(frozen=True, slots=True)
class ReceiveFile:
    """The use case."""

    store: StoreContent
    files: Files

    async def __call__(
        self,
        scope: AccessScope,
        description: FileDescription,
        body: AsyncIterator[bytes],
        idempotency_key: str | None = None,
    ) -> File:
        """Return the new file, or the one that the same request made before.

        Raises what ``StoreContent`` and ``body`` raise, and ConflictError ``IDEMPOTENCY_KEY_REUSED``.
        """

        async def add(content: StoredContent) -> File:
            return await self.files.add(scope, description, content=content, idempotency_key=idempotency_key)

        return await self.store.then(add, scope, None, body)
