"""The record of embedding spaces: which one is searched and written, which one is built beside it, and their change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import asyncpg

from services.chassis.kernel.errors import ConfigurationError, ConflictError, UnavailableError
from services.chassis.models.registry import check_space
from services.chassis.models.space import EmbeddingSpace
from services.chassis.postgres.faults import DATABASE_AWAY
from services.chassis.postgres.migrations import require_migrated
from services.chassis.postgres.queries import load_query
from services.chassis.resource_types import ResourceType
from services.chassis.stopping import pause
from services.embeddings.adapters.postgres.vector_tables import vector_tables
from services.embeddings.application.space_ports import SpaceProgress

LOCK_TIMEOUT = "500ms"
LOCK_ATTEMPTS = 20
PAUSE_SECONDS = 0.2
REMOVAL_BATCH = 1_000

_PACKAGE = "services.embeddings"
_INDEX = "SELECT module_embeddings_index_spaces()"

_ByState: TypeAlias = Mapping[str, asyncpg.Record]


async def join_space(pool: asyncpg.Pool, space: EmbeddingSpace) -> int:
    """Return the id of the active space, which must be the configured one; the first to start makes it active.

    While there are two, the configured one may be either: so that a change of the active space, or back, needs no
    change of settings at the same moment.

    Raises:
        ConfigurationError: ``SPACE_MISMATCH`` when the index is in another space, or another version of this one.
    """
    await pool.execute(load_query(_PACKAGE, "register_space"), *_recipe(space))
    spaces = {row["name"]: row for row in await pool.fetch(load_query(_PACKAGE, "list_spaces"))}
    (active,) = (row for row in spaces.values() if row["state"] == "ACTIVE")
    if space.name not in spaces:
        raise ConfigurationError(
            "SPACE_MISMATCH",
            f"the index is in the embedding space {active['name']!r}, this service is configured for {space.name!r}",
            where="CAUCE_EMBEDDING_SPACE",
            remedy=f"set CAUCE_EMBEDDING_SPACE={active['name']}, or change the index with `cauce reindex`",
        )
    check_space(_space(active))
    space_id: int = active["id"]
    return space_id


async def find_active_space(pool: asyncpg.Pool) -> tuple[int, EmbeddingSpace]:
    """The id of the active space, and what it is."""
    row = await pool.fetchrow(load_query(_PACKAGE, "find_active_space"))
    return row["id"], _space(row)


async def until_another_space(pool: asyncpg.Pool, space_id: int, *, poll_seconds: float) -> None:
    """Return when another space than this one is active, or the database has not all migrations of this release."""
    while True:
        await pause(poll_seconds)
        try:
            await require_migrated(pool)
            if (await find_active_space(pool))[0] != space_id:
                return
        except UnavailableError:
            return
        except DATABASE_AWAY:
            continue


class PostgresSpaces:
    """Builds, changes and drops spaces. Implements the Spaces port."""

    def __init__(self, pool: asyncpg.Pool, types: Mapping[str, ResourceType]) -> None:
        self._pool = pool
        self._tables = vector_tables(types)

    async def list_spaces(self) -> list[SpaceProgress]:
        """The active one, and the one beside it if there is one."""
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            rows = await connection.fetch(load_query(_PACKAGE, "list_spaces"))
            return [await self._progress(connection, row) for row in rows]

    async def begin(self, space: EmbeddingSpace, texts_per_minute: int | None) -> None:
        """Have the space built beside the active one, or go on with it, at that rate.

        Raises ConflictError, UnavailableError.
        """

        async def change(connection: asyncpg.Connection, spaces: _ByState) -> None:
            if "ACTIVE" not in spaces:
                raise ConflictError("NO_ACTIVE_SPACE", "no embedding space is active yet", remedy="start a worker")
            if spaces["ACTIVE"]["name"] == space.name:
                raise ConflictError("SPACE_ACTIVE", f"the space {space.name!r} is the active one already")
            if "BUILDING" in spaces and spaces["BUILDING"]["name"] != space.name:
                raise ConflictError(
                    "SPACE_BUILDING",
                    f"the space {spaces['BUILDING']['name']!r} is there beside the active one",
                    remedy="drop it first: `cauce reindex --drop`",
                )
            await connection.execute(load_query(_PACKAGE, "begin_space"), *_recipe(space), texts_per_minute)
            await connection.execute(_INDEX)

        await self._alone(change)

    async def swap(self, *, back: bool) -> None:
        """Make the other space the active one, in one short transaction, and keep this one beside it.

        What the other one lacks is counted before, and once more while nobody writes.
        Raises ConflictError, UnavailableError.
        """
        for space in await self.list_spaces():
            _require_whole(space.space.name, space.missing)

        async def change(connection: asyncpg.Connection, spaces: _ByState) -> None:
            active, other = spaces.get("ACTIVE"), _require_second(spaces)
            if active is None or (back and other["activated_at"] is None):
                raise ConflictError(
                    "NOT_ACTIVE_BEFORE",
                    f"the space {other['name']!r} was never active",
                    remedy="`cauce reindex --swap` makes it active",
                )
            _require_whole(other["name"], (await self._count(connection, other["id"]))[1])
            # There are never two in one state.
            for space_id, state in ((active["id"], "RETIRED"), (other["id"], "ACTIVE"), (active["id"], "BUILDING")):
                await connection.execute(load_query(_PACKAGE, "set_space_state"), space_id, state)

        await self._alone(change)

    async def drop(self) -> None:
        """Give up the space beside the active one. Raises ConflictError, UnavailableError."""

        async def change(connection: asyncpg.Connection, spaces: _ByState) -> None:
            other = _require_second(spaces)
            await connection.execute(load_query(_PACKAGE, "set_space_state"), other["id"], "RETIRED")
            await connection.execute("DELETE FROM module_embeddings_space_lease")
            await connection.execute(_INDEX)

        await self._alone(change)

    async def remove_dropped(self) -> int:
        """Remove the vectors of spaces that were dropped, in small transactions. Return how many there were."""
        removed = 0
        for space in await self._pool.fetch(load_query(_PACKAGE, "list_dropped_spaces")):
            for table in self._tables.values():
                last: int | None = 0
                while last is not None:
                    row = await self._pool.fetchrow(table.statement("remove_dropped"), space["id"], last, REMOVAL_BATCH)
                    removed, last = removed + row["removed"], row["last"]
            await self._pool.execute(load_query(_PACKAGE, "forget_dropped_space"), space["id"])
        return removed

    async def _progress(self, connection: asyncpg.Connection, row: asyncpg.Record) -> SpaceProgress:
        texts, missing = await self._count(connection, row["id"])
        return SpaceProgress(
            space=_space(row),
            state=row["state"],
            texts=texts,
            missing=missing,
            texts_per_minute=row["texts_per_minute"],
            fault=row["fault"],
            begun_at=row["begun_at"],
            activated_at=row["activated_at"],
        )

    async def _count(self, connection: asyncpg.Connection, space_id: int) -> tuple[int, int]:
        """How many texts there are, and how many of them have no vector in the space."""
        rows = [await connection.fetchrow(table.statement("count_unmade"), space_id) for table in self._tables.values()]
        return sum(row["texts"] for row in rows), sum(row["missing"] for row in rows)

    async def _alone(self, change: Callable[[asyncpg.Connection, _ByState], Awaitable[None]]) -> None:
        """Change the spaces in a transaction in which nobody else writes vectors.

        Who holds what it needs is waited for shortly, again and again, so that no queue of searches forms behind it.
        Raises UnavailableError ``SPACE_BUSY``.
        """
        for _ in range(LOCK_ATTEMPTS):
            try:
                async with self._pool.acquire() as connection, connection.transaction():
                    await connection.execute("SELECT set_config('lock_timeout', $1, true)", LOCK_TIMEOUT)
                    rows = await connection.fetch(load_query(_PACKAGE, "lock_spaces"))
                    await change(connection, {row["state"]: row for row in rows})
                    return
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
                await asyncio.sleep(PAUSE_SECONDS)
        raise UnavailableError("SPACE_BUSY", "others did not let go of the tables in time", remedy="try again")


def _recipe(space: EmbeddingSpace) -> tuple[str, str, str, int, str]:
    return space.name, space.provider, space.model, space.native_dimensions, space.convention


def _space(row: asyncpg.Record) -> EmbeddingSpace:
    return EmbeddingSpace(*(row[name] for name in ("name", "provider", "model", "native_dimensions", "convention")))


def _require_second(spaces: _ByState) -> asyncpg.Record:
    if "BUILDING" not in spaces:
        raise ConflictError(
            "NO_SECOND_SPACE",
            "there is no space beside the active one",
            remedy="`cauce reindex --space NAME` builds one",
        )
    return spaces["BUILDING"]


def _require_whole(name: str, missing: int) -> None:
    if missing:
        raise ConflictError(
            "SPACE_INCOMPLETE",
            f"{missing} texts have no vector in the space {name!r} yet",
            remedy="wait until the workers have made them; `cauce reindex --status` says how far they are, and why not",
        )
