"""The transactional outbox: an event is a row written in the transaction of the state that it announces."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import asyncpg
from opentelemetry import propagate

from contracts.events.envelope import Event, EventType
from contracts.events.topics import Topic
from services.chassis.kernel.identifiers import uuid7

_INSERT = """
INSERT INTO {table} (id, topic, aggregate_type, aggregate_id, type, payload, headers)
SELECT e.id, $1, $2, e.aggregate_id, e.type, e.payload, e.headers
FROM unnest($3::uuid[], $4::text[], $5::text[], $6::jsonb[], $7::jsonb[]) WITH ORDINALITY
    AS e (id, aggregate_id, type, payload, headers, position)
ORDER BY e.position
"""
_NOTIFY = "SELECT pg_notify($1, '')"


def new_event(type_: EventType, aggregate_id: int, name: str, tenant_id: str) -> Event:
    """An event that happens now, within the current trace."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return Event(
        event_id=uuid7(),
        type=type_,
        aggregate_id=aggregate_id,
        name=name,
        tenant_id=tenant_id,
        time=datetime.now(UTC),
        traceparent=carrier.get("traceparent"),
    )


async def append_events(connection: asyncpg.Connection, table: str, topic: Topic, events: Sequence[Event]) -> None:
    """Write the events to the outbox within the caller's transaction, and wake the relay when it commits.

    Args:
        connection: inside the transaction that changes the state.
        table: the service's outbox table.
        topic: where the relay will publish.
        events: in the order in which they happened.
    """
    if not events:
        return
    await connection.execute(
        _INSERT.format(table=table),
        topic.name,
        events[0].type.context,
        [event.event_id for event in events],
        [event.key for event in events],
        [str(event.type) for event in events],
        [event.payload for event in events],
        [event.headers() for event in events],
    )
    await connection.execute(_NOTIFY, table)
