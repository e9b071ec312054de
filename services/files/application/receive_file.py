"""Registers a file and stores its bytes in one go; when the bytes do not become whole, the file ends FAILED at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from services.chassis.kernel.errors import CauceError
from services.chassis.kernel.scope import AccessScope
from services.files.application.ports import Files
from services.files.application.register_file import RegisterFile
from services.files.application.store_content import StoreContent
from services.files.domain.description import FileDescription


@dataclass(frozen=True, slots=True)
class ReceiveFile:
    """The use case."""

    register: RegisterFile
    store: StoreContent
    files: Files

    async def __call__(self, scope: AccessScope, description: FileDescription, body: AsyncIterator[bytes]) -> int:
        """Return the id of the new file, whose bytes are stored. Raises what ``StoreContent`` and ``body`` raise."""
        file_id = await self.register(scope, description)
        try:
            await self.store(scope, file_id, body)
        except CauceError as error:
            await self.files.fail(scope, file_id, error)
            raise
        return file_id
