"""Files and their upkeep over PostgreSQL. Times are the database's, so a service whose clock is wrong does no harm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from contracts.events.envelope import EventType
from contracts.events.files import FILE_DELETED, FILE_UPLOADED
from contracts.events.topics import FILES_EVENTS
from services.chassis.kernel.errors import CauceError, ConflictError, NotFoundError, UnavailableError
from services.chassis.kernel.scope import AccessScope
from services.chassis.messaging.outbox import append_events, new_event
from services.chassis.postgres.faults import DATABASE_AWAY
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
        upload_time: how long an upload may go on without having its time started again.
        grace_time: how long bytes outlive the row that pointed to them, for those who are still reading.
    """

    def __init__(self, pool: asyncpg.Pool, *, upload_time: timedelta, grace_time: timedelta) -> None:
        self._pool = pool
        self._upload_time = upload_time
        self._grace_time = grace_time

    async def add(
        self,
        scope: AccessScope,
        description: FileDescription,
        *,
        content: StoredContent | None = None,
        idempotency_key: str | None = None,
    ) -> File:
        """Register a file: in state UPLOADING, or with its bytes, which are announced."""
        try:
            async with self._transaction() as connection:
                row = await connection.fetchrow(
                    _sql("insert_file"),
                    scope.tenant_id,
                    description.name,
                    description.media_type,
                    description.metadata,
                    self._upload_time,
                )
                if idempotency_key is not None:
                    fingerprint = description.fingerprint(content.sha256 if content else None)
                    await _claim_request(connection, scope, row["id"], idempotency_key, fingerprint)
                if content is None:
                    return _file(row)
                return await _point_to(connection, scope, row["id"], content)
        except _RepeatedError as repeated:
            return await self.get(scope, repeated.file_id)

    async def get(self, scope: AccessScope, file_id: int) -> File:
        """The file as it is now."""
        identifier = _possible(file_id)
        row = await self._pool.fetchrow(_sql("select_files"), scope.tenant_id, identifier, identifier, 1)
        if row is None:
            raise _not_found()
        return _file(row, _processing(row))

    async def newest(self, scope: AccessScope, *, before_id: int, limit: int) -> list[File]:
        """Files with an id below ``before_id``, newest first."""
        rows = await self._pool.fetch(_sql("select_files"), scope.tenant_id, 1, before_id - 1, limit)
        return [_file(row, _processing(row)) for row in rows]

    async def begin_upload(self, scope: AccessScope, file_id: int | None, storage_key: str) -> None:
        """Set the key aside and start the time that the upload has."""
        if file_id is None:
            await self._pool.execute(_sql("discard_key"), storage_key, self._upload_time + self._grace_time)
            return
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

    async def extend_upload(self, scope: AccessScope, file_id: int | None, storage_key: str) -> None:
        """Start the upload's time again. A database that does not answer is passed over."""
        with suppress(*DATABASE_AWAY):
            await self._pool.execute(
                _sql("extend_upload"), scope.tenant_id, file_id, storage_key, self._upload_time, self._grace_time
            )

    async def store(self, scope: AccessScope, file_id: int, content: StoredContent) -> File:
        """Point the file to its new bytes, set the old ones aside, and announce FileUploaded."""
        async with self._transaction() as connection:
            old = await connection.fetchrow(_sql("lock_file"), scope.tenant_id, _possible(file_id))
            if old is None:
                raise _not_found()
            file = await _point_to(connection, scope, file_id, content)
            await self._set_aside(connection, old["storage_key"])
            return file

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

    async def raise_revision(self, scope: AccessScope, file: File) -> File | None:
        """Announce FileUploaded again under the next revision, if the file still has the one that is known."""
        async with self._transaction() as connection:
            row = await connection.fetchrow(_sql("raise_revision"), scope.tenant_id, file.file_id, file.revision)
            if row is None:
                return None
            await _announce(connection, FILE_UPLOADED, scope, file.file_id, file.name)
            return replace(file, **row)

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

    async def now(self) -> datetime:
        """The database's time."""
        now: datetime = await self._pool.fetchval(_sql("now"))
        return now

    async def end_overdue_uploads(self, due: datetime) -> int:
        """End a batch of uploads whose time was over by then. Return how many."""
        rows = await self._pool.fetch(
            _sql("end_overdue_uploads"),
            "UPLOAD_INCOMPLETE",
            "the upload stopped before the file was whole",
            UPKEEP_BATCH,
            due,
        )
        return len(rows)

    async def claim_garbage(self, due: datetime) -> Sequence[str]:
        """Claim a batch of storage keys whose time had come by then."""
        rows = await self._pool.fetch(_sql("doom_keys"), DELETION_RETRY, UPKEEP_BATCH, due)
        return [row["storage_key"] for row in rows]

    async def forget_garbage(self, storage_keys: Sequence[str]) -> None:
        """The objects of these claimed keys are deleted."""
        await self._pool.execute(_sql("forget_keys"), list(storage_keys))


class _RepeatedError(Exception):
    """The same was asked for before: nothing is to be written."""

    def __init__(self, file_id: int) -> None:
        super().__init__(file_id)
        self.file_id = file_id


async def _claim_request(
    connection: asyncpg.Connection, scope: AccessScope, file_id: int, key: str, fingerprint: bytes
) -> None:
    """Take the key for a file that this transaction has made; waits for who takes it at the same time."""
    taken = await connection.fetchrow(_sql("claim_request"), scope.tenant_id, key, file_id, fingerprint)
    if taken["fingerprint"] != fingerprint:
        raise ConflictError(
            "IDEMPOTENCY_KEY_REUSED",
            "the key was used for another file",
            where="header.idempotency-key",
            remedy="use a new key for every file, and repeat a request as it was",
        )
    if taken["file_id"] != file_id:
        raise _RepeatedError(taken["file_id"])


async def _point_to(connection: asyncpg.Connection, scope: AccessScope, file_id: int, content: StoredContent) -> File:
    """Point a file that this transaction has made or locked to its new bytes, and announce them."""
    if await connection.fetchval(_sql("rescue_key"), content.storage_key) is None:
        raise UnavailableError(
            "UPLOAD_EXPIRED",
            "the database was away for so long that the bytes were given up",
            where="content",
            remedy="send the file again",
        )
    row = await connection.fetchrow(
        _sql("store_content"), scope.tenant_id, file_id, content.storage_key, content.size_bytes, content.sha256
    )
    await _announce(connection, FILE_UPLOADED, scope, file_id, row["name"])
    return _file(row)


async def _announce(
    connection: asyncpg.Connection, type_: EventType, scope: AccessScope, file_id: int, name: str
) -> None:
    event = new_event(type_, file_id, name, scope.tenant_id)
    await append_events(connection, OUTBOX, FILES_EVENTS, [event])


def _not_found() -> NotFoundError:
    return NotFoundError("FILE_NOT_FOUND", "there is no such file", where="file_id", remedy="list the files")


def _file(row: Mapping[str, Any], processing: Processing | None = None) -> File:
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
        processing=processing,
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
