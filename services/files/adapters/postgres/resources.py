"""The catalogue over PostgreSQL: a table for each type, its statements made from the type's declaration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import asyncpg

from contracts.events.envelope import Event
from contracts.events.topics import CATALOG_EVENTS
from services.chassis.kernel.scope import AccessScope
from services.chassis.messaging.outbox import append_events, new_event
from services.chassis.postgres.templates import fill, identifier, load_template
from services.chassis.resource_types import ResourceType
from services.files.adapters.postgres.files import OUTBOX
from services.files.domain.resource import Outcome, Resource, ResourceChange, ResourceDefinition, ResourceDeletion

# Two transactions that each lock many rows could wait for one another. A transaction of one row waits for one lock
# only, so it needs no turn.
_TAKE_TURN = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"

_Result = tuple[Outcome, Resource | None]


class PostgresResources:
    """Implements the Resources port. Changes to one id happen one after the other, and so do their events."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def apply(self, scope: AccessScope, type_: ResourceType, changes: Sequence[ResourceChange]) -> list[_Result]:
        """Make the changes, of different resources, in one transaction, each with its event."""
        definitions = [change for change in changes if isinstance(change, ResourceDefinition)]
        deletions = [change for change in changes if isinstance(change, ResourceDeletion)]
        async with self._pool.acquire() as connection, connection.transaction():
            if len(changes) > 1:
                await connection.execute(_TAKE_TURN, type_.source_table)
            results = await _put(connection, scope, type_, definitions) if definitions else {}
            deleted = await _delete(connection, scope, type_, deletions) if deletions else {}
            results |= {id_: (Outcome.DELETED if id_ in deleted else Outcome.ABSENT, None) for id_ in _ids(deletions)}
            events = _events(scope, type_, changes, results, deleted)
            await append_events(connection, OUTBOX, CATALOG_EVENTS, events)
        return [results[change.resource_id] for change in changes]

    async def find(self, scope: AccessScope, type_: ResourceType, resource_id: int) -> Resource | None:
        """The resource as it is now, None when the scope holds none of that id."""
        row = await self._pool.fetchrow(_sql("find_resources", type_), scope.tenant_id, [resource_id])
        return None if row is None else _resource(row, type_)

    async def list_after(self, scope: AccessScope, type_: ResourceType, *, after: int, limit: int) -> list[Resource]:
        """Resources with an id above ``after``, in order of id."""
        rows = await self._pool.fetch(_sql("list_resources", type_), scope.tenant_id, after, limit)
        return [_resource(row, type_) for row in rows]

    async def announce(self, scope: AccessScope, type_: ResourceType, resource_id: int) -> bool:
        """Announce the resource as it is, under a new revision. Returns whether there is one."""
        async with self._pool.acquire() as connection, connection.transaction():
            name = await connection.fetchval(_sql("raise_resource_revision", type_), scope.tenant_id, resource_id)
            if name is not None:
                event = new_event(type_.changed, resource_id, name, scope.tenant_id)
                await append_events(connection, OUTBOX, CATALOG_EVENTS, [event])
        return name is not None


async def _put(
    connection: asyncpg.Connection, scope: AccessScope, type_: ResourceType, definitions: Sequence[ResourceDefinition]
) -> dict[int, _Result]:
    by_id = {definition.resource_id: definition for definition in definitions}
    rows = await connection.fetch(
        _sql("put_resources", type_), scope.tenant_id, json.dumps([_given(one) for one in definitions])
    )
    results: dict[int, _Result] = {
        row["id"]: (
            Outcome.CREATED if row["created"] else Outcome.UPDATED,
            Resource(by_id[row["id"]], row["revision"], row["created_at"], row["updated_at"]),
        )
        for row in rows
    }
    untouched = [id_ for id_ in by_id if id_ not in results]
    if untouched:
        # Another statement, because it must see what others committed while this transaction waited for their locks.
        rows = await connection.fetch(_sql("find_resources", type_), scope.tenant_id, untouched)
        results |= dict.fromkeys(untouched, (Outcome.TAKEN, None))
        results |= {row["id"]: (Outcome.UNCHANGED, _resource(row, type_)) for row in rows}
    return results


async def _delete(
    connection: asyncpg.Connection, scope: AccessScope, type_: ResourceType, deletions: Sequence[ResourceDeletion]
) -> dict[int, str]:
    """Delete. Return the names of those that were there, by id."""
    rows = await connection.fetch(_sql("delete_resources", type_), scope.tenant_id, _ids(deletions))
    return {row["id"]: row["name"] for row in rows}


def _events(
    scope: AccessScope,
    type_: ResourceType,
    changes: Sequence[ResourceChange],
    results: Mapping[int, _Result],
    deleted: Mapping[int, str],
) -> list[Event]:
    events = []
    for change in changes:
        match change, results[change.resource_id][0]:
            case ResourceDefinition(id_, name), Outcome.CREATED | Outcome.UPDATED:
                events.append(new_event(type_.changed, id_, name, scope.tenant_id))
            case ResourceDeletion(id_), Outcome.DELETED:
                events.append(new_event(type_.deleted, id_, deleted[id_], scope.tenant_id))
    return events


@cache
def _sql(template: str, type_: ResourceType) -> str:
    columns = {"name": "text"} | {field.name: field.column_type for field in type_.fields}
    names = [identifier(name) for name in columns]
    parts = {
        "table": identifier(type_.source_table),
        "columns": ", ".join(names),
        "definitions": ", ".join(f"{identifier(name)} {kind}" for name, kind in columns.items()),
        "stored_columns": ", ".join(f"stored.{name}" for name in names),
        "excluded_columns": ", ".join(f"excluded.{name}" for name in names),
    }
    return fill(load_template("services.files", template), parts)


def _given(definition: ResourceDefinition) -> dict[str, Any]:
    values = {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in definition.values.items()
    }
    return {"id": definition.resource_id, "name": definition.name, **values}


def _ids(changes: Sequence[ResourceChange]) -> list[int]:
    return [change.resource_id for change in changes]


def _resource(row: Mapping[str, Any], type_: ResourceType) -> Resource:
    values = {field.name: row[field.name] for field in type_.fields}
    return Resource(
        ResourceDefinition(row["id"], row["name"], values), row["revision"], row["created_at"], row["updated_at"]
    )
