"""Files and their upkeep over PostgreSQL. Times are the database's, so a service whose clock is wrong does no harm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from contracts.events.envelope import EventType
from contracts.events.files import FILE_DELETED, FILE_UPLOADED
from contracts.events.topics import FILES_EVENTS
from services.chassis.kernel.errors import CauceError, IncompleteInputError, NotFoundError
from services.chassis.kernel.scope import AccessScope
from services.chassis.messaging.outbox import append_events, new_event
from services.chassis.postgres.queries import load_query
from services.files.domain.description import FileDescription
from services.files.domain.file import MAX_FILE_ID, File, FileState, FileStatus, Processing, StoredContent

OUTBOX = "module_files_outbox"
UPKEEP_BATCH = 100
DELETION_RETRY = timedelta(minutes=1)
"""After this time a claimed key whose object could not be deleted comes up again."""

_AT_ONCE = timedelta(0)


def _sql(name: str) -> str:
    return load_query("services.files", name)


def _possible(file_id: int) -> int:
    """The id, or one that no file has when the column could not hold it."""
    return file_id if 0 < file_id <= MAX_FILE_ID else 0


class PostgresFiles:
    """Implements the Files port.

    Args:
        pool: connections as the role ``cauce_files``.
        upload_time: how long an upload waits for its next byte.
        grace_time: how long bytes outlive the row that pointed to them, for those who are still reading.
    """

    def __init__(self, pool: asyncpg.Pool, *, upload_time: timedelta, grace_time: timedelta) -> None:
        self._pool = pool
        self._upload_time = upload_time
        self._grace_time = grace_time

    async def add(self, scope: AccessScope, description: FileDescription) -> int:
        """Register a file in state UPLOADING. Return its id."""
        file_id: int = await self._pool.fetchval(
            _sql("insert_file"),
            scope.tenant_id,
            description.name,
            description.media_type,
            description.metadata,
            self._upload_time,
        )
        return file_id

    async def get(self, scope: AccessScope, file_id: int) -> File:
        """The file as it is now."""
        identifier = _possible(file_id)
        row = await self._pool.fetchrow(_sql("select_files"), scope.tenant_id, identifier, identifier, 1)
        if row is None:
            raise _not_found()
        return _file(row)

    async def newest(self, scope: AccessScope, *, before_id: int, limit: int) -> list[File]:
        """Files with an id below ``before_id``, newest first."""
        rows = await self._pool.fetch(_sql("select_files"), scope.tenant_id, 1, before_id - 1, limit)
        return [_file(row) for row in rows]

    async def begin_upload(self, scope: AccessScope, file_id: int, storage_key: str) -> None:
        """Set the key aside and start the time that the upload has."""
        found = await self._pool.fetchval(
            _sql("begin_upload"),
            scope.tenant_id,
            _possible(file_id),
            storage_key,
            self._upload_time,
            self._grace_time,
        )
        if found is None:
            raise _not_found()

    async def extend_upload(self, scope: AccessScope, file_id: int, storage_key: str) -> None:
        """Bytes arrive: start the upload's time again."""
        await self._pool.execute(
            _sql("extend_upload"), scope.tenant_id, file_id, storage_key, self._upload_time, self._grace_time
        )

    async def store(self, scope: AccessScope, file_id: int, content: StoredContent) -> None:
        """Point the file to its new bytes, set the old ones aside, and announce FileUploaded."""
        async with self._transaction() as connection:
            file = await connection.fetchrow(_sql("lock_file"), scope.tenant_id, _possible(file_id))
            if file is None:
                raise _not_found()
            if await connection.fetchval(_sql("rescue_key"), content.storage_key) is None:
                raise IncompleteInputError(
                    "UPLOAD_INCOMPLETE", "the upload took too long", where="content", remedy="send the file again"
                )
            await connection.execute(
                _sql("store_content"),
                scope.tenant_id,
                file_id,
                content.storage_key,
                content.size_bytes,
                content.sha256,
            )
            await self._set_aside(connection, file["storage_key"])
            await _announce(connection, FILE_UPLOADED, scope, file_id, file["name"])

    async def release(self, storage_key: str) -> None:
        """Have the bytes of an upload that came to nothing deleted."""
        await self._pool.execute(_sql("discard_key"), storage_key, _AT_ONCE)

    async def fail(self, scope: AccessScope, file_id: int, error: CauceError) -> None:
        """End the file FAILED unless it has bytes."""
        await self._pool.execute(_sql("fail_upload"), scope.tenant_id, _possible(file_id), error.code, error.message)

    async def delete(self, scope: AccessScope, file_id: int) -> None:
        """Remove the file, set its bytes aside, and announce FileDeleted."""
        async with self._transaction() as connection:
            file = await connection.fetchrow(_sql("delete_file"), scope.tenant_id, _possible(file_id))
            if file is None:
                raise _not_found()
            await self._set_aside(connection, file["storage_key"])
            await _announce(connection, FILE_DELETED, scope, file_id, file["name"])

    async def raise_revision(self, scope: AccessScope, file_id: int, revision: int) -> bool:
        """Announce FileUploaded again under the next revision, if ``revision`` is still the present one."""
        async with self._transaction() as connection:
            name = await connection.fetchval(_sql("raise_revision"), scope.tenant_id, file_id, revision)
            if name is not None:
                await _announce(connection, FILE_UPLOADED, scope, file_id, name)
            return name is not None

    async def _set_aside(self, connection: asyncpg.Connection, storage_key: str | None) -> None:
        if storage_key is not None:
            await connection.execute(_sql("discard_key"), storage_key, self._grace_time)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[asyncpg.Connection]:
        async with self._pool.acquire() as connection, connection.transaction():
            yield connection


class PostgresUpkeep:
    """Implements the Upkeep port."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def end_overdue_uploads(self) -> int:
        """End a batch of uploads that no byte has reached in their time. Return how many."""
        rows = await self._pool.fetch(
            _sql("end_overdue_uploads"),
            "UPLOAD_INCOMPLETE",
            "the upload stopped before the file was whole",
            UPKEEP_BATCH,
        )
        return len(rows)

    async def claim_garbage(self) -> Sequence[str]:
        """Claim a batch of storage keys whose time has come."""
        rows = await self._pool.fetch(_sql("doom_keys"), DELETION_RETRY, UPKEEP_BATCH)
        return [row["storage_key"] for row in rows]

    async def forget_garbage(self, storage_keys: Sequence[str]) -> None:
        """The objects of these claimed keys are deleted."""
        await self._pool.execute(_sql("forget_keys"), list(storage_keys))


async def _announce(
    connection: asyncpg.Connection, type_: EventType, scope: AccessScope, file_id: int, name: str
) -> None:
    event = new_event(type_, file_id, name, scope.tenant_id)
    await append_events(connection, OUTBOX, FILES_EVENTS, [event])


def _not_found() -> NotFoundError:
    return NotFoundError("FILE_NOT_FOUND", "there is no such file", where="file_id", remedy="list the files")


def _file(row: Mapping[str, Any]) -> File:
    return File(
        file_id=row["id"],
        name=row["name"],
        declared_media_type=row["media_type"],
        metadata=row["metadata"],
        state=FileState(row["state"]),
        revision=row["revision"],
        content=_content(row),
        error_code=row["error_code"],
        error_message=row["error_message"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        processing=_processing(row),
    )


def _content(row: Mapping[str, Any]) -> StoredContent | None:
    if row["storage_key"] is None:
        return None
    return StoredContent(row["storage_key"], row["size_bytes"], row["sha256"])


def _processing(row: Mapping[str, Any]) -> Processing | None:
    if row["p_status"] is None:
        return None
    published = {name.removeprefix("p_"): value for name, value in row.items() if name.startswith("p_")}
    return Processing(**{**published, "status": FileStatus(published["status"])})
