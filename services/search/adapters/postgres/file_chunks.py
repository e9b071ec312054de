"""The chunks of files over pgvector. Every statement names the tenant and, where vectors count, the space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
from opentelemetry import trace

from services.chassis.kernel.scope import AccessScope
from services.chassis.models.space import Vector
from services.chassis.postgres.queries import load_query
from services.search.domain.criteria import FileChunksCriteria, FileChunkSearchCriteria
from services.search.domain.results import FileChunk, FileChunkMatch, FileChunks

# The index scan keeps this many candidates; pgvector allows no more than the limit. One candidate beyond the
# rows that are asked for tells the sort whether the last ones are equal.
EF_SEARCH_DEFAULT = 100
EF_SEARCH_MAX = 1_000

_tracer = trace.get_tracer("cauce")


def server_settings(ef_search: int = EF_SEARCH_DEFAULT) -> Mapping[str, str]:
    """Session settings of the pool that ``PostgresFileChunkIndex`` needs; a ``SET`` would not survive its reset.

    The scan goes on until enough rows pass the filters. The order is relaxed within it and restored outside. A generic
    plan knows neither the limit nor how many rows a tenant has, and then compares every row.
    """
    return {
        "hnsw.iterative_scan": "relaxed_order",
        "hnsw.ef_search": str(ef_search),
        "plan_cache_mode": "force_custom_plan",
    }


class PostgresFileChunkIndex:
    """Implements ``FileChunkIndex``."""

    def __init__(self, pool: asyncpg.Pool, *, ef_search: int, timeout_seconds: float) -> None:
        self._pool = pool
        self._ef_search = ef_search
        self._timeout = timeout_seconds

    async def nearest(
        self, scope: AccessScope, space_id: int, vector: Vector, criteria: FileChunkSearchCriteria
    ) -> tuple[FileChunkMatch, ...]:
        """The chunks of any file by the HNSW index, best first."""
        statement = load_query("services.search", "nearest_chunks")
        arguments = (vector, scope.tenant_id, space_id, criteria.top_n, criteria.min_score)
        with _tracer.start_as_current_span("nearest_chunks"):
            async with self._pool.acquire(timeout=self._timeout) as connection:
                if criteria.top_n < self._ef_search:
                    rows = await connection.fetch(statement, *arguments, timeout=self._timeout)
                else:
                    ef_search = min(criteria.top_n + 1, EF_SEARCH_MAX)
                    async with connection.transaction():
                        await connection.execute(f"SET LOCAL hnsw.ef_search = {ef_search:d}", timeout=self._timeout)
                        rows = await connection.fetch(statement, *arguments, timeout=self._timeout)
        return _matches(rows)

    async def find_nearest_in_file(
        self, scope: AccessScope, space_id: int, vector: Vector, criteria: FileChunkSearchCriteria
    ) -> tuple[FileChunkMatch, ...] | None:
        """The chunks of one file, every one compared, best first; None for an unknown file."""
        rows = await self._fetch(
            "nearest_chunks_of_file",
            vector,
            scope.tenant_id,
            space_id,
            criteria.top_n,
            criteria.min_score,
            criteria.file_id,
        )
        return _matches(rows) if rows else None

    async def find_chunks(self, scope: AccessScope, criteria: FileChunksCriteria) -> FileChunks | None:
        """The chunks of one file in the order of its text; None for an unknown file."""
        pages = criteria.pages
        rows = await self._fetch(
            "chunks_of_file",
            criteria.file_id,
            scope.tenant_id,
            None if pages is None else [first for first, _ in pages],
            None if pages is None else [last for _, last in pages],
            -1 if criteria.after is None else criteria.after,
            criteria.limit + 1,
        )
        if not rows:
            return None
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
            for row in rows[: criteria.limit]
            if row["chunk_id"] is not None
        )
        return FileChunks(
            file_id=rows[0]["file_id"],
            file_name=rows[0]["file_name"],
            pages=rows[0]["page_count"],
            chunks=chunks,
            next=chunks[-1].position if len(rows) > criteria.limit else None,
        )

    async def _fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        with _tracer.start_as_current_span(query):
            async with self._pool.acquire(timeout=self._timeout) as connection:
                rows: list[asyncpg.Record] = await connection.fetch(
                    load_query("services.search", query), *arguments, timeout=self._timeout
                )
                return rows


def _matches(rows: Sequence[asyncpg.Record]) -> tuple[FileChunkMatch, ...]:
    return tuple(FileChunkMatch(**row) for row in rows if row["chunk_id"] is not None)
