"""Streams a file's bytes to storage, digested and counted on the way, then makes them the file's in one transaction.

Whatever happens between, no object is left that nobody knows of, and a file never points to bytes that are not whole.
Of two uploads to one file at the same time the one that ends last wins. The upload has time for as long as its request
lives: how long the sender may be silent is the body's to say, and slow storage or a slow database are no fault of his.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from services.chassis.kernel.errors import CauceError, TooLargeError
from services.chassis.kernel.identifiers import uuid7
from services.chassis.kernel.scope import AccessScope
from services.chassis.stopping import end
from services.files.application.ports import Files, ObjectStorage
from services.files.domain.file import File, StoredContent

if TYPE_CHECKING:
    from hashlib import _Hash


@dataclass(frozen=True, slots=True)
class StoreContent:
    """The use case.

    Attributes:
        max_bytes: the most that a file may have.
        extend_seconds: how often an upload under way has its time started again.
    """

    files: Files
    storage: ObjectStorage
    max_bytes: int
    extend_seconds: float

    async def __call__(
        self, scope: AccessScope, file_id: int, body: AsyncIterator[bytes], *, announced_bytes: int | None = None
    ) -> File:
        """Store new bytes for a file, which may have some already. Return it without its processing.

        Args:
            scope: who asks.
            file_id: whose bytes they are.
            body: the bytes; raises a CauceError when they end before they are whole.
            announced_bytes: how many there will be, when the sender said so.

        Raises:
            NotFoundError: ``FILE_NOT_FOUND``.
            TooLargeError: ``FILE_TOO_LARGE``; a file without bytes ends FAILED.
            IncompleteInputError: ``UPLOAD_INCOMPLETE``; a file without bytes stays UPLOADING until its time is over.
            UnavailableError: ``STORAGE_UNAVAILABLE``, likewise; ``UPLOAD_EXPIRED`` as ``Files.store`` has it.
        """

        async def store(content: StoredContent) -> File:
            return await self.files.store(scope, file_id, content)

        try:
            return await self.then(store, scope, file_id, body, announced_bytes)
        except TooLargeError as error:
            await self.files.fail(scope, file_id, error)
            raise

    async def then(
        self,
        settle: Callable[[StoredContent], Awaitable[File]],
        scope: AccessScope,
        file_id: int | None,
        body: AsyncIterator[bytes],
        announced_bytes: int | None = None,
    ) -> File:
        """Store the bytes, then ``settle`` whose they are; ``file_id`` is None while they are nobody's.

        Raises what ``__call__`` does, and nothing is left then that nobody knows of.
        """
        storage_key = _new_storage_key()
        await self.files.begin_upload(scope, file_id, storage_key)
        try:
            passage = _Passage(storage_key, self.max_bytes)
            if announced_bytes is not None:
                passage.check_size(announced_bytes)
            async with self._given_time(scope, file_id, storage_key):
                await self.storage.write(storage_key, passage.of(body))
                return await settle(passage.content())
        except CauceError:
            await self.files.release(storage_key)
            raise

    @asynccontextmanager
    async def _given_time(self, scope: AccessScope, file_id: int | None, storage_key: str) -> AsyncIterator[None]:
        """Start the upload's time again and again, to the end of the context."""

        async def extend() -> None:
            while True:
                await asyncio.sleep(self.extend_seconds)
                await self.files.extend_upload(scope, file_id, storage_key)

        extending = asyncio.create_task(extend())
        try:
            yield
        finally:
            await end(extending)


@dataclass(slots=True)
class _Passage:
    """Bytes on their way to storage."""

    storage_key: str
    max_bytes: int
    size_bytes: int = 0
    digest: _Hash = field(default_factory=sha256)

    async def of(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in body:
            self.size_bytes += len(chunk)
            self.check_size(self.size_bytes)
            self.digest.update(chunk)
            yield chunk

    def check_size(self, size_bytes: int) -> None:
        if size_bytes > self.max_bytes:
            raise file_too_large(self.max_bytes)

    def content(self) -> StoredContent:
        return StoredContent(self.storage_key, self.size_bytes, self.digest.digest())


def file_too_large(max_bytes: int) -> TooLargeError:
    """The error of a file with more bytes than allowed."""
    return TooLargeError(
        "FILE_TOO_LARGE",
        f"the file has more than the {max_bytes} bytes that are allowed",
        where="content",
        remedy="send a smaller file, or have CAUCE_UPLOAD_MAX_BYTES raised",
    )


def _new_storage_key() -> str:
    """A key that was never used and tells nothing of the file; spread over folders, for storage that has such."""
    identifier = uuid7().hex
    return f"files/{identifier[-2:]}/{identifier}"
