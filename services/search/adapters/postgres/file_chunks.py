"""The chunks of files over pgvector. Every statement names the tenant and, where vectors count, the space."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
from opentelemetry import trace

from services.chassis.kernel.scope import AccessScope
from services.chassis.models.space import Vector
from services.chassis.postgres.queries import load_query
from services.search.domain.criteria import FileChunksCriteria, FileChunkSearchCriteria
from services.search.domain.errors import file_not_found
from services.search.domain.results import FileChunk, FileChunkMatch, FileChunks, NearestFileChunks, Strategy

EF_SEARCH_DEFAULT = 100
EF_SEARCH_MAX = 1_000  # pgvector's
COUNTED_FOR_SECONDS = 5.0

_COUNTED_TENANTS_MAX = 10_000

_tracer = trace.get_tracer("cauce")


def server_settings(ef_search: int = EF_SEARCH_DEFAULT) -> Mapping[str, str]:
    """Session settings that ``PostgresFileChunkIndex`` needs of its pool.

    An index scan goes on until enough rows pass the filters. Its order is relaxed, and restored outside. The planner
    counts no cost for reading vectors out of line and would compare 10,000 of them instead of walking the index; every
    plan but the walk sorts, so sorting is made dear. A generic plan knows neither the limit nor the tenant's size.
    """
    return {
        "hnsw.iterative_scan": "relaxed_order",
        "hnsw.ef_search": str(ef_search),
        "enable_sort": "off",
        "plan_cache_mode": "force_custom_plan",
    }


class PostgresFileChunkIndex:
    """Implements ``FileChunkIndex``.

    Args:
        pool: with ``server_settings``.
        ef_search: what the pool's sessions are set to.
        exact_up_to: a tenant's chunks are compared one by one while they are no more than this: complete, where an
            index scan would walk over other tenants' rows. 2,000 take about 15 ms.
        timeout_seconds: for a connection, and for a statement.
        counted_for_seconds: how long a tenant is taken to be as large as it was; a wrong guess costs only time.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        *,
        ef_search: int,
        exact_up_to: int,
        timeout_seconds: float,
        counted_for_seconds: float = COUNTED_FOR_SECONDS,
    ) -> None:
        self._pool = pool
        self._ef_search = ef_search
        self._exact_up_to = exact_up_to
        self._timeout = timeout_seconds
        self._counted_for = counted_for_seconds
        self._is_large: dict[tuple[str, int], tuple[bool, float]] = {}

    async def nearest(
        self, scope: AccessScope, space_id: int, vector: Vector, criteria: FileChunkSearchCriteria
    ) -> NearestFileChunks:
        """The chunks nearest to the vector, best first. Raises NotFoundError for an unknown file."""
        arguments = (vector, scope.tenant_id, space_id, criteria.top_n, criteria.min_score)
        with _tracer.start_as_current_span("nearest chunks") as span:
            async with self._pool.acquire(timeout=self._timeout) as connection:
                if criteria.file_id is not None:
                    strategy = Strategy.EXACT
                    rows = await self._fetch(connection, "nearest_chunks_of_file", *arguments, criteria.file_id)
                    if not rows:
                        raise file_not_found(criteria.file_id)
                elif await self._exceeds_exact(connection, scope, space_id):
                    strategy = Strategy.HNSW
                    rows = await self._walk_index(connection, criteria.top_n, *arguments)
                else:
                    strategy = Strategy.EXACT
                    rows = await self._fetch(connection, "nearest_chunks_exact", *arguments)
            span.set_attribute("strategy", strategy.value)
        matches = tuple(FileChunkMatch(**row) for row in rows if row["chunk_id"] is not None)
        return NearestFileChunks(matches, strategy)

    async def get_chunks(self, scope: AccessScope, criteria: FileChunksCriteria) -> FileChunks:
        """The chunks of one file in the order of its text. Raises NotFoundError for an unknown file."""
        pages = criteria.pages
        async with self._pool.acquire(timeout=self._timeout) as connection:
            rows = await self._fetch(
                connection,
                "chunks_of_file",
                criteria.file_id,
                scope.tenant_id,
                None if pages is None else [first for first, _ in pages],
                None if pages is None else [last for _, last in pages],
                -1 if criteria.after is None else criteria.after,
                criteria.limit + 1,
            )
        if not rows:
            raise file_not_found(criteria.file_id)
        return _file_chunks(rows, criteria.limit)

    async def _walk_index(self, connection: asyncpg.Connection, top_n: int, *arguments: Any) -> list[asyncpg.Record]:
        """Search with at least one candidate more than rows: it tells the sort whether the last ones are equal."""
        if top_n < self._ef_search:
            return await self._fetch(connection, "nearest_chunks", *arguments)
        async with connection.transaction():
            await connection.execute(f"SET LOCAL hnsw.ef_search = {min(top_n + 1, EF_SEARCH_MAX):d}")
            return await self._fetch(connection, "nearest_chunks", *arguments)

    async def _exceeds_exact(self, connection: asyncpg.Connection, scope: AccessScope, space_id: int) -> bool:
        """Whether the tenant has too many chunks to compare them all."""
        key = (scope.tenant_id, space_id)
        large, until = self._is_large.get(key, (False, 0.0))
        if time.monotonic() < until:
            return large
        rows = await self._fetch(connection, "count_chunks", scope.tenant_id, space_id, self._exact_up_to + 1)
        large = bool(rows[0]["count"] > self._exact_up_to)
        if len(self._is_large) >= _COUNTED_TENANTS_MAX:
            self._is_large.clear()
        self._is_large[key] = (large, time.monotonic() + self._counted_for)
        return large

    async def _fetch(self, connection: asyncpg.Connection, query: str, *arguments: Any) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await connection.fetch(
            load_query("services.search", query), *arguments, timeout=self._timeout
        )
        return rows


def _file_chunks(rows: Sequence[asyncpg.Record], limit: int) -> FileChunks:
    chunks = tuple(
        FileChunk(
            chunk_id=row["chunk_id"],
            position=row["position"],
            page_from=row["page_from"],
            page_to=row["page_to"],
            char_start=row["char_start"],
            char_end=row["char_end"],
            text=row["text"],
        )
        for row in rows[:limit]
        if row["chunk_id"] is not None
    )
    return FileChunks(
        file_id=rows[0]["file_id"],
        file_name=rows[0]["file_name"],
        pages=rows[0]["page_count"],
        chunks=chunks,
        next=chunks[-1].position if len(rows) > limit else None,
    )
