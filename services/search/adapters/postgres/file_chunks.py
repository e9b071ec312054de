"""The chunks of files, by pgvector and by BM25. Every statement names the tenant and the space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import asyncpg
from opentelemetry import trace

from services.chassis.kernel.scope import AccessScope
from services.search.adapters.postgres.engine import EF_SEARCH_DEFAULT, Bounds, SearchRun, fetch_rows
from services.search.adapters.postgres.legs import Size, make_plan
from services.search.adapters.postgres.result_lists import CHARACTERS_DEFAULT, ResultLists, list_key, read_version
from services.search.adapters.postgres.statements import assemble, chunk_filter, file_filter
from services.search.application.ports import Question
from services.search.domain.criteria import ChunkFilter, FileChunksCriteria, FileChunkSearchCriteria
from services.search.domain.errors import file_not_found
from services.search.domain.fusion import Fusion
from services.search.domain.results import FileChunk, FileChunkMatch, FileChunks, FoundFileChunks

_KNOWN_SIZES_MAX = 10_000
_LISTED_FILES_MAX = 10_000

_tracer = trace.get_tracer("cauce")


def server_settings(ef_search: int = EF_SEARCH_DEFAULT) -> Mapping[str, str]:
    """Session settings that ``PostgresFileChunkIndex`` needs of its pool.

    An index scan goes on until enough rows pass the filters. Its order is relaxed, and restored outside. The planner
    counts no cost for reading vectors out of line and would compare 10,000 of them instead of walking the index; every
    plan but the walk sorts, so sorting is made dear.
    """
    return {
        "hnsw.iterative_scan": "relaxed_order",
        "hnsw.ef_search": str(ef_search),
        "enable_sort": "off",
    }


def lexical_index(space_id: int) -> str:
    """The index of the words of the chunks of a space."""
    return f"module_embeddings_file_chunk_lexical_{space_id}"


class PostgresFileChunkIndex:
    """Implements ``FileChunkIndex``.

    Args:
        pool: with ``server_settings``.
        bounds: chunks are compared one by one also up to the geometric mean of the table's size and a tenth of
            ``exact_up_to``.
        cached_characters: of the results that are kept in memory.
    """

    def __init__(self, pool: asyncpg.Pool, bounds: Bounds, *, cached_characters: int = CHARACTERS_DEFAULT) -> None:
        self._pool = pool
        self._bounds = bounds
        self._lists: ResultLists[FoundFileChunks] = ResultLists(cached_characters)
        self._sizes: dict[tuple[str, int], tuple[int, Size]] = {}

    async def search(
        self, scope: AccessScope, question: Question, criteria: FileChunkSearchCriteria, fusion: Fusion
    ) -> FoundFileChunks:
        """The chunks that the question's legs find, best first. Raises NotFoundError for an unknown file."""
        wanted, key = criteria.filter, (scope.tenant_id, question.space_id)
        with _tracer.start_as_current_span("find chunks") as span:
            async with self._pool.acquire(timeout=self._bounds.timeout_seconds) as connection:
                version, words = await read_version(connection, scope, question, self._bounds.timeout_seconds)
                list_of = list_key(scope, question, criteria, fusion)
                known = self._lists.find(list_of, version)
                if known is not None:
                    return replace(known, cached=True)
                file_ids = await self._list_files(connection, scope, wanted) if wanted.of_files else None
                fragments, values = chunk_filter(wanted, file_ids)
                run = SearchRun(
                    connection,
                    "chunks",
                    lexical_index(question.space_id),
                    self._bounds,
                    scope=scope,
                    question=question,
                    criteria=criteria,
                    fragments=fragments,
                    values={**values, **words},
                )
                size = await run.size() if wanted else await self._size(run, key, version)
                plan = make_plan(
                    question,
                    size,
                    top_n=criteria.top_n,
                    candidates=self._bounds.candidates,
                    filtered=bool(wanted),
                    exact=criteria.exact,
                )
                records, legs, used = await run.find(question, plan, size, fusion, criteria.top_n)
            span.set_attributes({"strategy.dense": str(used.dense), "strategy.lexical": str(used.lexical)})
            matches = tuple(_match(row) for row in records if row["chunk_id"] is not None)
            total = used.total(records[0], size, criteria.min_score, len(matches))
            found = FoundFileChunks(matches, legs, total)
            if not run.is_cut_short:
                self._lists.keep(list_of, version, found, sum(len(match.text) for match in matches))
        return found

    async def cosines(
        self, scope: AccessScope, question: Question, matches: Sequence[FileChunkMatch]
    ) -> Mapping[tuple[str, int], float]:
        """The cosine of the question's vector with each of the passages, by its key."""
        by_id = {match.chunk_id: match.key for match in matches}
        async with self._pool.acquire(timeout=self._bounds.timeout_seconds) as connection:
            rows = await fetch_rows(
                connection,
                "chunk_cosines",
                self._bounds,
                scope.tenant_id,
                question.space_id,
                question.vector,
                list(by_id),
            )
        return {by_id[row["chunk_id"]]: row["score"] for row in rows}

    async def find_beside(
        self, scope: AccessScope, matches: Sequence[FileChunkMatch]
    ) -> Mapping[tuple[int, int], FileChunk]:
        """The chunks right before and after the passages, by file and position, without the passages themselves."""
        files, positions = [match.file_id for match in matches], [match.position for match in matches]
        async with self._pool.acquire(timeout=self._bounds.timeout_seconds) as connection:
            rows = await fetch_rows(connection, "chunks_beside", self._bounds, scope.tenant_id, files, positions)
        return {(row["file_id"], row["position"]): _chunk(row) for row in rows}

    async def get_chunks(self, scope: AccessScope, criteria: FileChunksCriteria) -> FileChunks:
        """The chunks of one file in the order of its text. Raises NotFoundError for an unknown file."""
        pages = criteria.pages
        async with self._pool.acquire(timeout=self._bounds.timeout_seconds) as connection:
            rows = await fetch_rows(
                connection,
                "chunks_of_file",
                self._bounds,
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

    async def _list_files(
        self, connection: asyncpg.Connection, scope: AccessScope, wanted: ChunkFilter
    ) -> list[int] | None:
        """The files that pass the filter, None when they are too many to be listed.

        Raises:
            NotFoundError: one that is named is unknown.
        """
        of_files, values = file_filter(wanted)
        named = {"tenant": scope.tenant_id, "files_limit": _LISTED_FILES_MAX + 1}
        rows = await self._execute(connection, *assemble("files", {"file_filter": of_files}, {**values, **named}))
        file_ids = [row["file_id"] for row in rows]
        if len(file_ids) < len(wanted.file_ids):
            by_name, values = file_filter(ChunkFilter(file_ids=wanted.file_ids))
            rows = await self._execute(connection, *assemble("files", {"file_filter": by_name}, {**values, **named}))
            known = {row["file_id"] for row in rows}
            for file_id in wanted.file_ids:
                if file_id not in known:
                    raise file_not_found(file_id)
        return file_ids if len(file_ids) <= _LISTED_FILES_MAX else None

    async def _size(self, run: SearchRun, key: tuple[str, int], version: int) -> Size:
        """How large the tenant is; counted again when its index has changed."""
        known = self._sizes.get(key)
        if known is not None and known[0] == version:
            return known[1]
        if len(self._sizes) >= _KNOWN_SIZES_MAX:
            self._sizes.clear()
        size = await run.size()
        self._sizes[key] = version, size
        return size

    async def _execute(
        self, connection: asyncpg.Connection, statement: str, arguments: list[object]
    ) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await connection.fetch(statement, *arguments, timeout=self._bounds.timeout_seconds)
        return rows


def _match(row: asyncpg.Record) -> FileChunkMatch:
    return FileChunkMatch(
        file_id=row["file_id"],
        file_name=row["file_name"],
        chunk_id=row["chunk_id"],
        position=row["position"],
        page_from=row["page_from"],
        page_to=row["page_to"],
        char_start=row["char_start"],
        char_end=row["char_end"],
        score=row["score"],
        bm25_score=row["bm25_score"],
        dense_rank=row["dense_rank"],
        lexical_rank=row["lexical_rank"],
        fused_score=row["fused_score"],
        text=row["text"],
    )


def _chunk(row: asyncpg.Record) -> FileChunk:
    return FileChunk(
        chunk_id=row["chunk_id"],
        position=row["position"],
        page_from=row["page_from"],
        page_to=row["page_to"],
        char_start=row["char_start"],
        char_end=row["char_end"],
        text=row["text"],
    )


def _file_chunks(rows: Sequence[asyncpg.Record], limit: int) -> FileChunks:
    chunks = tuple(_chunk(row) for row in rows[:limit] if row["chunk_id"] is not None)
    return FileChunks(
        file_id=rows[0]["file_id"],
        file_name=rows[0]["file_name"],
        pages=rows[0]["page_count"],
        chunks=chunks,
        next=chunks[-1].position if len(rows) > limit else None,
    )
