"""Rows of the files service, written as its own role would, for tests of what comes after it."""

from __future__ import annotations

import asyncpg

from contracts.events.envelope import Event
from contracts.events.files import FILE_DELETED, FILE_UPLOADED
from services.chassis.messaging.outbox import new_event
from services.embeddings.adapters.extractors.editions import readers
from services.embeddings.domain.file_work import Recipe

TENANT = "default"
RECIPE = Recipe(chunk_size=1000, chunk_overlap=150, readers=readers("pymupdf"))


async def store_file(connection: asyncpg.Connection, name: str = "manual.pdf", *, size: int = 10) -> int:
    """A stored file of revision 1."""
    return await connection.fetchval(
        """INSERT INTO module_files_file (tenant_id, name, media_type, state, revision, size_bytes, sha256, storage_key)
           VALUES ($1, $2, 'application/pdf', 'STORED', 1, $3, '\\x00', $2) RETURNING id""",
        TENANT,
        name,
        size,
    )


async def replace_file(connection: asyncpg.Connection, file_id: int) -> None:
    """Its content becomes another."""
    await connection.execute("UPDATE module_files_file SET revision = revision + 1 WHERE id = $1", file_id)


async def delete_file(connection: asyncpg.Connection, file_id: int) -> None:
    """The source of record has it no more."""
    await connection.execute("DELETE FROM module_files_file WHERE id = $1", file_id)


def uploaded(file_id: int) -> Event:
    """FileUploaded, as the files service announces it."""
    return new_event(FILE_UPLOADED, file_id, "manual.pdf", TENANT)


def deleted(file_id: int) -> Event:
    """FileDeleted, as the files service announces it."""
    return new_event(FILE_DELETED, file_id, "manual.pdf", TENANT)
