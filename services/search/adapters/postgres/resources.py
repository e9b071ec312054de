"""The resources of every type over pgvector. Every statement names the tenant and, where vectors count, the space."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import asyncpg
from opentelemetry import trace

from services.chassis.kernel.scope import AccessScope
from services.chassis.models.space import Vector
from services.chassis.postgres.queries import load_query
from services.search.adapters.postgres.file_chunks import EF_SEARCH_MAX
from services.search.domain.criteria import ResourceKey, ResourceSearchCriteria
from services.search.domain.results import NearestResources, ResourceMatch, StoredResource, Strategy

_tracer = trace.get_tracer("cauce")


class PostgresResourceIndex:
    """Implements ``ResourceIndex`` over the unified view.

    Args:
        pool: with the session settings of ``PostgresFileChunkIndex``.
        known_types: what "all types" means.
        ef_search: what the pool's sessions are set to; it counts for each type's index.
        exact_up_to: resources are compared one by one while there are no more than this: complete, where an index
            scan would walk over other tenants' rows.
        timeout_seconds: for a connection, and for a statement.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        known_types: Collection[str],
        *,
        ef_search: int,
        exact_up_to: int,
        timeout_seconds: float,
    ) -> None:
        self._pool = pool
        self._known_types = sorted(known_types)
        self._ef_search = ef_search
        self._exact_up_to = exact_up_to
        self._timeout = timeout_seconds

    async def nearest(
        self, scope: AccessScope, space_id: int, vector: Vector, criteria: ResourceSearchCriteria
    ) -> NearestResources:
        """The resources nearest to the vector, best first."""
        types = list(criteria.entity_types) or self._known_types
        arguments = (vector, scope.tenant_id, space_id, criteria.top_n, criteria.min_score, types)
        with _tracer.start_as_current_span("nearest resources") as span:
            async with self._pool.acquire(timeout=self._timeout) as connection:
                counted = await self._fetch(
                    connection, "count_resources", scope.tenant_id, space_id, types, self._exact_up_to + 1
                )
                if counted[0]["count"] > self._exact_up_to:
                    strategy = Strategy.HNSW
                    rows = await self._walk_index(connection, criteria.top_n, *arguments)
                else:
                    strategy = Strategy.EXACT
                    rows = await self._fetch(connection, "nearest_resources_exact", *arguments)
            span.set_attribute("strategy", strategy.value)
        return NearestResources(tuple(ResourceMatch(**row) for row in rows), strategy)

    async def find(self, scope: AccessScope, key: ResourceKey) -> StoredResource | None:
        """What the index holds of a resource, None when it has none within the scope."""
        async with self._pool.acquire(timeout=self._timeout) as connection:
            rows = await self._fetch(connection, "stored_resource", key.entity_type, key.entity_id, scope.tenant_id)
        return StoredResource(**rows[0]) if rows else None

    async def _walk_index(self, connection: asyncpg.Connection, top_n: int, *arguments: Any) -> list[asyncpg.Record]:
        if top_n <= self._ef_search:
            return await self._fetch(connection, "nearest_resources", *arguments)
        async with connection.transaction():
            await connection.execute(f"SET LOCAL hnsw.ef_search = {min(top_n, EF_SEARCH_MAX):d}")
            return await self._fetch(connection, "nearest_resources", *arguments)

    async def _fetch(self, connection: asyncpg.Connection, query: str, *arguments: Any) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await connection.fetch(
            load_query("services.search", query), *arguments, timeout=self._timeout
        )
        return rows
