"""The mirror of resources as a work queue. Every write is fenced by the lease's token.

Times are the database's, so a worker whose clock is wrong does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

import asyncpg
from pgvector import Vector as PgVector

from contracts.events.embeddings import resource_embedded, resource_embedding_failed, resource_embedding_removed
from contracts.events.envelope import EventType
from contracts.events.topics import EMBEDDINGS_EVENTS
from services.chassis.messaging.outbox import append_events, new_event
from services.chassis.postgres.queries import load_query
from services.chassis.postgres.templates import fill, identifier, load_template
from services.chassis.resource_types import ResourceType
from services.embeddings.adapters.postgres.file_work import OUTBOX
from services.embeddings.application.resource_ports import BatchResult, EmbeddedResource
from services.embeddings.domain.errors import LeaseLostError
from services.embeddings.domain.resource_work import (
    ClaimedBatch,
    ClaimedResource,
    Failure,
    ResourceContext,
    Source,
    StoredText,
)

MOST_IN_BATCH = 100
REST_SECONDS = 3.0
"""How long a resource rests after a reconcile: a burst of changes costs a call at its start and one at its end."""
HEAD_START_SECONDS = 600.0
"""A change goes so far ahead in the queue of what follows from changes, and of what a sweep found."""

_PACKAGE = "services.embeddings"


class PostgresResourceWork:
    """Claims batches of resources and writes what became of them. Implements the ResourceWork port."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        types: Mapping[str, ResourceType],
        *,
        lease_seconds: float,
        rest_seconds: float = REST_SECONDS,
    ) -> None:
        self._pool = pool
        self._types = types
        self._lease_seconds = lease_seconds
        self._rest_seconds = rest_seconds
        self._last_turn = ""

    async def claim(self, limit: int, *, large: int | None = None) -> list[ClaimedBatch]:  # noqa: ARG002
        """Take up to ``limit`` batches that want work, each of one type under a new lease. None is large.

        Tenants take turns, so that one's many resources do not hold up another's few.
        """
        batches: list[ClaimedBatch] = []
        while len(batches) < limit and (rows := await self._claim()):
            resources = tuple(
                ClaimedResource(row["entity_id"], row["attempts"], row["requested_at"], row["traceparent"])
                for row in rows
            )
            batches.append(ClaimedBatch(rows[0]["entity_type"], rows[0]["lease_token"], resources))
        return batches

    async def renew(self, claim: ClaimedBatch) -> None:
        """Extend the lease. Raises LeaseLostError when it holds for none of the batch."""
        query = load_query(_PACKAGE, "renew_resources")
        if not await self._pool.fetchval(query, *_lease(claim, claim.entity_ids), self._lease_seconds):
            raise LeaseLostError

    async def read(self, entity_type: str, entity_ids: Sequence[int]) -> list[ResourceContext]:
        """What these resources are now; one that is gone is left out."""
        rows = await self._pool.fetch(self._template("read_resources", entity_type), entity_ids)
        return [_context(row) for row in rows]

    async def remember(self, batch: ClaimedBatch, sources: Mapping[int, Collection[Source]]) -> list[int]:
        """Note what each resource, by its id, has read. Return the ids of those that read something new."""
        query = load_query(_PACKAGE, "remember_dependencies")
        rows = await self._pool.fetch(query, batch.entity_type, batch.lease_token, *_edges(sources))
        return [row["dependent_id"] for row in rows]

    async def settle(self, batch: ClaimedBatch, result: BatchResult) -> Collection[int]:
        """Write the result and announce it, in one transaction; where the lease is lost nothing is written.

        Nor where the result's space is active no more: then the batch goes back to the queue.

        The mirror is written first: that locks its rows, checks the lease, and says which vectors may be written.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            held = await self._settle_mirror(connection, batch, result)
            stored = [resource for resource in result.embedded if resource.context.entity_id in held]
            renamed = [context for context in result.renamed if context.entity_id in held]
            failed = [context.entity_id for context, _ in result.failed if context.entity_id in held]
            removed = await self._forget(connection, batch, result.gone)
            if stored:
                await self._store(connection, batch.entity_type, stored, result.space_id)
            if renamed:
                await connection.execute(
                    self._template("rename_vectors", batch.entity_type),
                    [context.entity_id for context in renamed],
                    [context.tenant_id for context in renamed],
                    [context.name for context in renamed],
                )
            if failed:
                await connection.execute(self._template("delete_vectors", batch.entity_type), failed)
            if held and self._types[batch.entity_type].reads:
                sources = {entity_id: result.sources[entity_id] for entity_id in held}
                query = load_query(_PACKAGE, "forget_dependencies")
                await connection.execute(query, batch.entity_type, list(held), *_edges(sources))
            await _announce(
                connection,
                batch.entity_type,
                {
                    resource_embedded: [
                        held[context.entity_id] for context in [*(one.context for one in stored), *renamed]
                    ],
                    resource_embedding_failed: [held[entity_id] for entity_id in failed],
                    resource_embedding_removed: removed,
                },
            )
        if not held and len(result.gone) < len(batch.resources):
            await self.release(batch)
        return held.keys()

    async def fail(self, claim: ClaimedBatch, code: str, message: str) -> None:
        """End the whole batch FAILED, without vectors, and announce it."""
        async with self._pool.acquire() as connection, connection.transaction():
            recipe = self._types[claim.entity_type].recipe
            failure = Failure(code, message)
            outcomes = [(entity_id, None, failure) for entity_id in claim.entity_ids]
            held = await self._write_outcomes(connection, claim, recipe, None, outcomes)
            await connection.execute(self._template("delete_vectors", claim.entity_type), list(held))
            await _announce(connection, claim.entity_type, {resource_embedding_failed: list(held.values())})

    async def give_back(
        self, claim: ClaimedBatch, code: str, message: str, *, delay_seconds: float, counts: bool
    ) -> None:
        """Return the batch to the queue after a passing fault, which stays visible."""
        await self._pool.execute(
            load_query(_PACKAGE, "give_back_resources"),
            *_lease(claim, claim.entity_ids),
            delay_seconds,
            code,
            message,
            counts,
        )

    async def release(self, claim: ClaimedBatch) -> None:
        """Return the batch to the queue at once, as if it had not been claimed."""
        await self._pool.execute(load_query(_PACKAGE, "give_back_resources"), *_released(claim, claim.entity_ids))

    async def _claim(self) -> list[asyncpg.Record]:
        query = load_query(_PACKAGE, "claim_resources")
        rows: list[asyncpg.Record] = await self._pool.fetch(
            query, list(self._types), MOST_IN_BATCH, self._lease_seconds, self._last_turn
        )
        if rows and rows[0]["turn"] is not None:
            self._last_turn = rows[0]["turn"]
        return rows

    async def _settle_mirror(
        self, connection: asyncpg.Connection, batch: ClaimedBatch, result: BatchResult
    ) -> dict[int, asyncpg.Record]:
        outcomes: list[tuple[int, ResourceContext | None, Failure | None]] = [
            *((resource.context.entity_id, resource.context, None) for resource in result.embedded),
            *((context.entity_id, context, None) for context in [*result.renamed, *result.unchanged]),
            *((context.entity_id, context, failure) for context, failure in result.failed),
        ]
        if not outcomes:
            return {}
        return await self._write_outcomes(connection, batch, result.recipe, result.space_id, outcomes)

    async def _forget(
        self, connection: asyncpg.Connection, batch: ClaimedBatch, gone: Sequence[int]
    ) -> list[asyncpg.Record]:
        """Remove what is gone, and mark what read it: its deletion may never have been announced.

        What was asked for again meanwhile may be there again: back to the queue with it.
        """
        if not gone:
            return []
        query = load_query(_PACKAGE, "forget_resources")
        removed: list[asyncpg.Record] = await connection.fetch(query, batch.entity_type, batch.lease_token, gone)
        if len(removed) < len(gone):
            await connection.execute(load_query(_PACKAGE, "give_back_resources"), *_released(batch, gone))
        if removed:
            now = datetime.now(UTC)
            wishes = [Wish(batch.entity_type, row["entity_id"], now, None) for row in removed]
            await mark(connection, self._types, wishes, self._rest_seconds, by_events=False)
        return removed

    async def _store(
        self,
        connection: asyncpg.Connection,
        entity_type: str,
        resources: Sequence[EmbeddedResource],
        space_id: int,
    ) -> None:
        await connection.execute(
            self._template("store_vectors", entity_type),
            [resource.context.entity_id for resource in resources],
            [resource.context.tenant_id for resource in resources],
            [resource.context.name for resource in resources],
            [resource.text for resource in resources],
            [PgVector(resource.vector) for resource in resources],  # an array would be taken for one more dimension
            [resource.text_hash for resource in resources],
            space_id,
        )

    async def _write_outcomes(
        self,
        connection: asyncpg.Connection,
        batch: ClaimedBatch,
        recipe: str,
        space_id: int | None,
        outcomes: Sequence[tuple[int, ResourceContext | None, Failure | None]],
    ) -> dict[int, asyncpg.Record]:
        """Settle the rows whose lease holds; return them by id. Without a context a row keeps its name and tenant."""
        rows = await connection.fetch(
            load_query(_PACKAGE, "settle_resources"),
            batch.entity_type,
            batch.lease_token,
            [entity_id for entity_id, _, _ in outcomes],
            recipe,
            space_id,
            [context and context.tenant_id for _, context, _ in outcomes],
            [context and context.name for _, context, _ in outcomes],
            [context and context.revision for _, context, _ in outcomes],
            [failure and failure.code for _, _, failure in outcomes],
            [failure and failure.message for _, _, failure in outcomes],
            self._rest_seconds,
            batch.entity_ids,
        )
        return {row["entity_id"]: row for row in rows}

    def _template(self, name: str, entity_type: str) -> str:
        return type_template(name, self._types[entity_type])


class Wish(NamedTuple):
    """That a resource wants attention, since when, and the trace that asked."""

    entity_type: str
    entity_id: int
    requested_at: datetime
    traceparent: str | None


async def mark(
    connection: asyncpg.Connection,
    types: Mapping[str, ResourceType],
    wishes: Sequence[Wish],
    rest_seconds: float,
    *,
    by_events: bool,
) -> list[asyncpg.Record]:
    """Mark resources and their readers. Returns for each whether the source of record has it, and its readers.

    What events ask for goes ahead in the queue, and nothing that they ask for once more is marked again.
    """
    pairs = [(type_.name, read) for type_ in types.values() for read in type_.reads]
    rows: list[asyncpg.Record] = await connection.fetch(
        load_query(_PACKAGE, "mark_resources"),
        *([wish[column] for wish in wishes] for column in range(len(Wish._fields))),
        [reader for reader, _ in pairs],
        [read for _, read in pairs],
        rest_seconds,
        HEAD_START_SECONDS if by_events else 0.0,
        by_events,
    )
    return rows


def type_template(name: str, type_: ResourceType) -> str:
    """The statement ``sql/templates/<name>.sql`` for the tables of one type."""
    parts = {"table": identifier(type_.table), "context_view": identifier(type_.context_view)}
    return fill(load_template(_PACKAGE, name), parts)


def _lease(batch: ClaimedBatch, entity_ids: Sequence[int]) -> tuple[str, Sequence[int], UUID]:
    return batch.entity_type, entity_ids, batch.lease_token


def _released(batch: ClaimedBatch, entity_ids: Sequence[int]) -> tuple[object, ...]:
    """Back to the queue at once, without a fault and without spending the attempt."""
    return (*_lease(batch, entity_ids), 0.0, None, None, False)


def _context(row: asyncpg.Record) -> ResourceContext:
    values = dict(row)
    stored = {name: values.pop(f"stored_{name}") for name in ("tenant_id", "name", "text_hash", "space_id")}
    return ResourceContext(
        entity_id=row["entity_id"],
        tenant_id=row["tenant_id"],
        name=row["name"] or "",
        revision=row["revision"],
        reads=row["reads"] or [],
        values=values,
        stored=None if stored["text_hash"] is None else StoredText(**stored),
    )


def _edges(sources: Mapping[int, Iterable[Source]]) -> tuple[list[int], list[str], list[int]]:
    """Dependent ids, source types and source ids, as columns of the same length."""
    edges = [(entity_id, *source) for entity_id, some in sources.items() for source in some]
    return [edge[0] for edge in edges], [edge[1] for edge in edges], [edge[2] for edge in edges]


async def _announce(
    connection: asyncpg.Connection,
    entity_type: str,
    rows: Mapping[Callable[[str], EventType], Sequence[asyncpg.Record]],
) -> None:
    events = [
        new_event(make(entity_type), row["entity_id"], row["name"], row["tenant_id"])
        for make, some in rows.items()
        for row in some
    ]
    await append_events(connection, OUTBOX, EMBEDDINGS_EVENTS, events)
