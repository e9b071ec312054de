"""Vectors of questions, kept in the database for every process of the service and over restarts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg

from services.chassis.kernel.scope import AccessScope
from services.chassis.models.space import Vector
from services.chassis.observability import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY
from services.chassis.postgres.queries import load_query

_FAULTS = (*DATABASE_AWAY, asyncpg.PostgresError)

_log = get_logger(__name__)


class PostgresQueryVectors:
    """Implements ``StoredQueryVectors``. A fault is logged when it appears, and passes for an empty store.

    Args:
        pool: of the service.
        rows: the most that are kept, give or take what comes in between two prunings.
        unused_for: what was not asked for as long as this is forgotten.
        timeout_seconds: for a connection, and for a statement.
    """

    def __init__(self, pool: asyncpg.Pool, *, rows: int, unused_for: timedelta, timeout_seconds: float) -> None:
        self._pool = pool
        self._rows = rows
        self._unused_for = unused_for
        self._timeout = timeout_seconds
        self._works = True

    async def find(self, scope: AccessScope, space: str, text_hash: bytes) -> Vector | None:
        """The vector of a text, None when it is not there or cannot be had now."""
        try:
            found = await self._fetch("find_query_vector", scope.tenant_id, space, text_hash)
        except _FAULTS as fault:
            self._report(fault)
            return None
        self._works = True
        if found is None:
            return None
        vector: Vector = found.to_numpy()
        return vector

    async def store(self, scope: AccessScope, space: str, text_hash: bytes, vector: Vector) -> None:
        """Keep the vector of a text, if that is possible now."""
        try:
            await self._fetch("store_query_vector", scope.tenant_id, space, text_hash, vector)
        except _FAULTS as fault:
            self._report(fault)

    async def prune(self) -> None:
        """Forget what is too old or too much. Raises what the database raises."""
        await self._fetch("prune_query_vectors", self._rows, self._unused_for)

    async def _fetch(self, query: str, *arguments: object) -> Any:
        async with self._pool.acquire(timeout=self._timeout) as connection:
            return await connection.fetchval(load_query("services.search", query), *arguments, timeout=self._timeout)

    def _report(self, fault: Exception) -> None:
        if self._works:
            _log.warning("query_vectors_not_kept", error=f"{type(fault).__name__}: {fault}")
        self._works = False
