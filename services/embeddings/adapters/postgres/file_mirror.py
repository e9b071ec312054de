"""The mirror of files as the intake and the sweep see it: which files want attention, and which are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import asyncpg

from contracts.events.embeddings import FILE_EMBEDDING_REMOVED
from contracts.events.envelope import Event
from contracts.events.files import FILE_DELETED
from contracts.events.topics import EMBEDDINGS_EVENTS
from services.chassis.messaging.outbox import append_events, new_event
from services.chassis.postgres.queries import load_query
from services.embeddings.adapters.postgres.file_work import OUTBOX
from services.embeddings.application.ports import QueueDepth
from services.embeddings.domain.file_work import LARGE_BYTES

SWEEP_BATCH = 10_000
LOST_SECONDS = 3_600.0
"""How long a file whose bytes were missing is left alone."""

_PACKAGE = "services.embeddings"


class PostgresFileMirror:
    """Marks files for attention and removes those that are gone. Implements the FileMirror port."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def mark(self, events: Sequence[Event]) -> None:
        """Take a batch of file events in one transaction. A repetition changes nothing, no order does in the end."""
        deleted = [event.aggregate_id for event in events if event.type == FILE_DELETED]
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                load_query(_PACKAGE, "mark_files"),
                [event.aggregate_id for event in events],
                [event.traceparent for event in events],
                LARGE_BYTES,
                LOST_SECONDS,
            )
            if deleted:
                await _remove(connection, deleted)

    async def sweep(self) -> Counter[str]:
        """Repair what events did not bring: mark files missing or stale, remove orphans. Return counts by reason.

        What waits for longer than anything has to is STUCK, and is done at once. What ended without its bytes an hour
        ago is LOST, and is tried again.
        """
        found: Counter[str] = Counter()
        async with self._pool.acquire() as connection, connection.transaction():
            stuck = await connection.fetch(load_query(_PACKAGE, "free_stuck_files"))
            found.update("STUCK" for _ in stuck)
            rows = await connection.fetch(load_query(_PACKAGE, "sweep_files"), SWEEP_BATCH, LOST_SECONDS)
            found.update(row["reason"] for row in rows)
            marked = [row["file_id"] for row in rows if row["reason"] != "ORPHANED"]
            orphaned = [row["file_id"] for row in rows if row["reason"] == "ORPHANED"]
            if marked:
                query = load_query(_PACKAGE, "mark_files")
                await connection.execute(query, marked, [None] * len(marked), LARGE_BYTES, LOST_SECONDS)
            if orphaned:
                await _remove(connection, orphaned)
        return found

    async def measure(self) -> list[QueueDepth]:
        """The depth and oldest age of the queue by state."""
        return [QueueDepth(**row) for row in await self._pool.fetch(load_query(_PACKAGE, "measure_queue"))]


async def _remove(connection: asyncpg.Connection, file_ids: Sequence[int]) -> None:
    rows = await connection.fetch(load_query(_PACKAGE, "remove_files"), file_ids)
    events = [new_event(FILE_EMBEDDING_REMOVED, row["file_id"], row["name"], row["tenant_id"]) for row in rows]
    await append_events(connection, OUTBOX, EMBEDDINGS_EVENTS, events)
