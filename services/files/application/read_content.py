"""Reads a file's bytes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.files.application.ports import Files, ObjectStorage
from services.files.domain.file import File, StoredContent


@dataclass(frozen=True, slots=True)
class ReadContent:
    """The use case."""

    files: Files
    storage: ObjectStorage

    async def __call__(self, scope: AccessScope, file_id: int) -> tuple[File, StoredContent, AsyncIterator[bytes]]:
        """The file and its bytes.

        Raises:
            NotFoundError: ``FILE_NOT_FOUND``.
            ConflictError: there are no bytes, ``UPLOAD_IN_PROGRESS`` or the code with which the upload failed.
            GoneError: ``CONTENT_MISSING``, the bytes were stored and are no more.
            UnavailableError: ``STORAGE_UNAVAILABLE``.
        """
        file = await self.files.get(scope, file_id)
        content = file.require_content()
        return file, content, await self.storage.open(content.storage_key)
