"""The mirror of resources as the intake and the sweep see it: which want attention, with whom, and which are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import asyncpg

from contracts.events.embeddings import resource_embedding_removed
from contracts.events.envelope import Event
from contracts.events.topics import EMBEDDINGS_EVENTS
from services.chassis.messaging.outbox import append_events, new_event
from services.chassis.postgres.queries import load_query
from services.chassis.resource_types import ResourceType
from services.embeddings.adapters.postgres.file_work import OUTBOX
from services.embeddings.adapters.postgres.resource_work import REST_SECONDS, type_template
from services.embeddings.application.ports import QueueDepth
from services.embeddings.application.resource_ports import Fan
from services.embeddings.domain.resource_work import Source

MOST_SWEPT = 100_000
SWEEP_BATCH = 5_000
IN_FLIGHT_SECONDS = 60.0
STUCK_SECONDS = 300.0
HEAD_START_SECONDS = 600.0
"""A change goes so far ahead in the queue of what follows from changes, and of what a sweep found."""

_PACKAGE = "services.embeddings"


class Wish(NamedTuple):
    """That a resource wants attention, since when, and the trace that asked."""

    entity_type: str
    entity_id: int
    requested_at: datetime
    traceparent: str | None


class PostgresResourceMirror:
    """Marks resources for attention and removes those that are gone. Implements the ResourceMirror port."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        types: Mapping[str, ResourceType],
        *,
        space_id: int,
        rest_seconds: float = REST_SECONDS,
    ) -> None:
        self._pool = pool
        self._rest_seconds = rest_seconds
        self._types = types
        self._space_id = space_id
        self._type_of = {
            str(event_type): type_.name for type_ in types.values() for event_type in (type_.changed, type_.deleted)
        }
        self._pairs = [(type_.name, read) for type_ in types.values() for read in type_.reads]

    async def mark(self, events: Sequence[Event]) -> list[Fan]:
        """Take a batch of catalogue events in one transaction, each with all that is made from what changed."""
        wishes = [
            Wish(self._type_of[str(event.type)], event.aggregate_id, event.time, event.traceparent) for event in events
        ]
        return await self._mark(wishes, HEAD_START_SECONDS)

    async def sweep(self) -> dict[str, Counter[str]]:
        """Repair what events did not bring. Return counts by reason, by type; nothing for a type that is well.

        Reads the whole of a type's tables once, then repairs in small transactions. What it does not get to (beyond
        ``MOST_SWEPT`` of a type) is left for the next sweep.
        """
        return {name: found for name, type_ in self._types.items() if (found := await self._sweep_type(type_))}

    async def measure(self) -> list[QueueDepth]:
        """The depth and oldest age of the queue by state."""
        rows = await self._pool.fetch(load_query(_PACKAGE, "measure_resources"), list(self._types))
        return [QueueDepth(**row) for row in rows]

    async def _sweep_type(self, type_: ResourceType) -> Counter[str]:
        rows = await self._pool.fetch(
            type_template("sweep_resources", type_),
            type_.name,
            type_.recipe,
            self._space_id,
            IN_FLIGHT_SECONDS,
            STUCK_SECONDS,
            MOST_SWEPT,
        )
        stuck = [row["entity_id"] for row in rows if row["reason"] == "STUCK"]
        if stuck:
            query = load_query(_PACKAGE, "free_stuck_resources")
            await self._pool.execute(query, type_.name, stuck, STUCK_SECONDS)
        now = datetime.now(UTC)
        wishes = [Wish(type_.name, row["entity_id"], now, None) for row in rows if row["reason"] != "STUCK"]
        for start in range(0, len(wishes), SWEEP_BATCH):
            await self._mark(wishes[start : start + SWEEP_BATCH], 0.0)
        return Counter(row["reason"] for row in rows)

    async def _mark(self, wishes: Sequence[Wish], head_start: float) -> list[Fan]:
        """Mark them and their readers; remove those that the source of record has no more."""
        async with self._pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(
                load_query(_PACKAGE, "mark_resources"),
                *([wish[column] for wish in wishes] for column in range(len(Wish._fields))),
                [reader for reader, _ in self._pairs],
                [read for _, read in self._pairs],
                self._rest_seconds,
                head_start,
            )
            absent = [row for row in rows if not row["present"]]
            if absent:
                await _remove(connection, absent)
        return [Fan(Source(row["entity_type"], row["entity_id"]), row["readers"]) for row in rows if row["readers"]]


async def _remove(connection: asyncpg.Connection, absent: Sequence[asyncpg.Record]) -> None:
    rows = await connection.fetch(load_query(_PACKAGE, "remove_resources"), *_keys(absent))
    events = [
        new_event(resource_embedding_removed(row["entity_type"]), row["entity_id"], row["name"], row["tenant_id"])
        for row in rows
    ]
    await append_events(connection, OUTBOX, EMBEDDINGS_EVENTS, events)


def _keys(rows: Sequence[asyncpg.Record]) -> tuple[list[str], list[int]]:
    return [row["entity_type"] for row in rows], [row["entity_id"] for row in rows]
