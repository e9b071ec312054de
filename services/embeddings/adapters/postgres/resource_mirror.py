"""The mirror of resources as the intake and the sweep see it: which want attention, with whom, and which are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import asyncpg

from contracts.events.embeddings import resource_embedding_removed
from contracts.events.envelope import Event
from contracts.events.topics import EMBEDDINGS_EVENTS
from services.chassis.messaging.outbox import append_events, new_event
from services.chassis.postgres.faults import DATABASE_AWAY
from services.chassis.postgres.queries import load_query
from services.chassis.resource_types import ResourceType
from services.embeddings.adapters.postgres.file_work import OUTBOX
from services.embeddings.adapters.postgres.resource_work import REST_SECONDS, Wish, mark, type_template
from services.embeddings.application.ports import QueueDepth
from services.embeddings.application.resource_ports import Fan
from services.embeddings.domain.errors import SweepIncompleteError
from services.embeddings.domain.resource_work import Source

MOST_SWEPT = 100_000
SWEEP_BATCH = 5_000
IN_FLIGHT_SECONDS = 60.0
STUCK_SECONDS = 300.0
EXHAUSTED_SECONDS = 3_600.0
"""How long a resource that was given up is left alone."""

_PACKAGE = "services.embeddings"


class PostgresResourceMirror:
    """Marks resources for attention and removes those that are gone. Implements the ResourceMirror port."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        types: Mapping[str, ResourceType],
        *,
        rest_seconds: float = REST_SECONDS,
    ) -> None:
        self._pool = pool
        self._rest_seconds = rest_seconds
        self._types = types
        self._type_of = {
            str(event_type): type_.name for type_ in types.values() for event_type in (type_.changed, type_.deleted)
        }

    async def mark(self, events: Sequence[Event]) -> list[Fan]:
        """Take a batch of catalogue events in one transaction, each with all that is made from what changed.

        The repetition of a change changes nothing; that of a deletion marks what was made from it once more.
        """
        wishes = [
            Wish(self._type_of[str(event.type)], event.aggregate_id, event.time, event.traceparent) for event in events
        ]
        return await self._mark(wishes, by_events=True)

    async def sweep(self) -> dict[str, Counter[str]]:
        """Repair what events did not bring. Return counts by reason, by type; nothing for a type that is well.

        Reads the whole of a type's tables once, then repairs in small transactions. What it does not get to (beyond
        ``MOST_SWEPT`` of a type) is left for the next sweep. What has no tenant (UNOWNED) only its source can mend.

        Raises:
            SweepIncompleteError: the tables of some types cannot be read; all others were swept.
        """
        found: dict[str, Counter[str]] = {}
        faults: dict[str, str] = {}
        for name, type_ in self._types.items():
            try:
                if counts := await self._sweep_type(type_):
                    found[name] = counts
            except asyncpg.PostgresError as error:
                if isinstance(error, DATABASE_AWAY):
                    raise
                faults[name] = f"{type(error).__name__}: {error}"
        if faults:
            raise SweepIncompleteError(faults, found)
        return found

    async def measure(self) -> list[QueueDepth]:
        """The depth and oldest age of the queue by state."""
        rows = await self._pool.fetch(load_query(_PACKAGE, "measure_resources"), list(self._types))
        return [QueueDepth(**row) for row in rows]

    async def _sweep_type(self, type_: ResourceType) -> Counter[str]:
        rows = await self._pool.fetch(
            type_template("sweep_resources", type_),
            type_.name,
            type_.recipe,
            IN_FLIGHT_SECONDS,
            STUCK_SECONDS,
            MOST_SWEPT,
            EXHAUSTED_SECONDS,
        )
        stuck = [row["entity_id"] for row in rows if row["reason"] == "STUCK"]
        if stuck:
            query = load_query(_PACKAGE, "free_stuck_resources")
            await self._pool.execute(query, type_.name, stuck, STUCK_SECONDS)
        now = datetime.now(UTC)
        wanted = [row for row in rows if row["reason"] not in ("STUCK", "UNOWNED")]
        wishes = [Wish(type_.name, row["entity_id"], row["changed_at"] or now, None) for row in wanted]
        for start in range(0, len(wishes), SWEEP_BATCH):
            await self._mark(wishes[start : start + SWEEP_BATCH], by_events=False)
        return Counter(row["reason"] for row in rows)

    async def _mark(self, wishes: Sequence[Wish], *, by_events: bool) -> list[Fan]:
        """Mark them and their readers; remove those that the source of record has no more."""
        async with self._pool.acquire() as connection, connection.transaction():
            rows = await mark(connection, self._types, wishes, self._rest_seconds, by_events=by_events)
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
