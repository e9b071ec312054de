"""What the use cases need from outside. Every look at files takes the caller's scope; only upkeep spans tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol

from services.chassis.kernel.errors import CauceError
from services.chassis.kernel.scope import AccessScope
from services.chassis.resource_types import ResourceType
from services.files.domain.description import FileDescription
from services.files.domain.file import File, StoredContent
from services.files.domain.resource import Outcome, Resource, ResourceChange


class Files(Protocol):
    """The files of a tenant. Each method is one transaction, and a change and its event are in the same one.

    Where a file is named, NotFoundError ``FILE_NOT_FOUND`` says that the scope holds none of that id.
    """

    async def add(
        self,
        scope: AccessScope,
        description: FileDescription,
        *,
        content: StoredContent | None = None,
        idempotency_key: str | None = None,
    ) -> File:
        """Register a file: in state UPLOADING, or with its bytes, which are announced.

        Under a key that the tenant has used for the same, it is the file that was made then, as it is now. Bytes that
        no file points to because of that are collected with other garbage.

        Raises:
            ConflictError: ``IDEMPOTENCY_KEY_REUSED`` when the key was used for another file.
            UnavailableError: as ``store``.
        """

    async def get(self, scope: AccessScope, file_id: int) -> File:
        """The file as it is now."""

    async def newest(self, scope: AccessScope, *, before_id: int, limit: int) -> list[File]:
        """Files with an id below ``before_id``, newest first."""

    async def begin_upload(self, scope: AccessScope, file_id: int | None, storage_key: str) -> None:
        """Set the key aside and start the time that the upload has. A file without bytes becomes UPLOADING.

        ``file_id`` is None while there is no file yet.
        """

    async def extend_upload(self, scope: AccessScope, file_id: int | None, storage_key: str) -> None:
        """Start the upload's time again. A database that does not answer is passed over: this is asked for again."""

    async def store(self, scope: AccessScope, file_id: int, content: StoredContent) -> File:
        """Point the file to its new bytes, set the old ones aside, and announce FileUploaded.

        Returns the file as it was stored, without its processing: what is published of that may be slow or away.

        Raises UnavailableError ``UPLOAD_EXPIRED`` when its time could not be started again for so long that the bytes
        are being deleted.
        """

    async def release(self, storage_key: str) -> None:
        """Have the bytes of an upload that came to nothing deleted."""

    async def fail(self, scope: AccessScope, file_id: int, error: CauceError) -> None:
        """End the file FAILED unless it has bytes; nothing happens when there is no such file."""

    async def delete(self, scope: AccessScope, file_id: int) -> None:
        """Remove the file, set its bytes aside, and announce FileDeleted."""

    async def raise_revision(self, scope: AccessScope, file: File) -> File | None:
        """Announce FileUploaded again under the next revision. None when ``file`` has another one by now."""


class Resources(Protocol):
    """The catalogue: the resources of a tenant, by type."""

    async def apply(
        self, scope: AccessScope, type_: ResourceType, changes: Sequence[ResourceChange]
    ) -> list[tuple[Outcome, Resource | None]]:
        """Make the changes in one transaction, each with its event.

        Args:
            scope: whose resources.
            type_: their type.
            changes: of different resources.

        Returns:
            What became of each, in order, and the resource as it is then; None where there is none to be seen.
        """

    async def find(self, scope: AccessScope, type_: ResourceType, resource_id: int) -> Resource | None:
        """The resource as it is now, None when the scope holds none of that id."""

    async def list_after(self, scope: AccessScope, type_: ResourceType, *, after: int, limit: int) -> list[Resource]:
        """Resources with an id above ``after``, in order of id."""

    async def announce(self, scope: AccessScope, type_: ResourceType, resource_id: int) -> bool:
        """Announce the resource as it is, under a new revision. Returns whether there is one."""


class Upkeep(Protocol):
    """What time leaves behind, over all tenants. Times are the database's."""

    async def now(self) -> datetime:
        """The time."""

    async def end_overdue_uploads(self, due: datetime) -> int:
        """End a batch of uploads whose time was over by then. Return how many."""

    async def claim_garbage(self, due: datetime) -> Sequence[str]:
        """Claim a batch of storage keys whose time had come by then; no file will point to them again."""

    async def forget_garbage(self, storage_keys: Sequence[str]) -> None:
        """The objects of these claimed keys are deleted."""


class ObjectStorage(Protocol):
    """Bytes under keys. All methods raise UnavailableError ``STORAGE_UNAVAILABLE`` when storage does not work."""

    async def write(self, key: str, body: AsyncIterator[bytes]) -> None:
        """Store what ``body`` yields, never whole in memory. When it raises, no object is left under the key."""

    async def open(self, key: str) -> AsyncIterator[bytes]:
        """The object's bytes, opened before the first is asked for. Raises GoneError ``CONTENT_MISSING`` for none."""

    async def delete(self, key: str) -> None:
        """Delete the object and what an interrupted write left of it; that there is none is no fault."""

    async def check(self) -> None:
        """Write a small object."""
