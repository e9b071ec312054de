"""The mirror of files as a work queue. Every write is fenced by the lease's token and the claimed generation.

Times are the database's, so a worker whose clock is wrong does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import repeat

import asyncpg
from pgvector import Vector as PgVector

from contracts.events.embeddings import FILE_EMBEDDED, FILE_EMBEDDING_FAILED, FILE_EMBEDDING_REMOVED
from contracts.events.envelope import EventType
from contracts.events.topics import EMBEDDINGS_EVENTS
from services.chassis.messaging.outbox import append_events, new_event
from services.chassis.models.space import Vector
from services.chassis.postgres.queries import load_query
from services.embeddings.adapters.postgres.spans import packed
from services.embeddings.application.ports import EmbeddedChunk
from services.embeddings.domain.enrichment import ImageDescription
from services.embeddings.domain.errors import LeaseLostError
from services.embeddings.domain.file_work import ALL_READERS, ClaimedFile, FileContext, FileResult, Recipe

OUTBOX = "module_embeddings_outbox"

_PACKAGE = "services.embeddings"
_CHUNK_COLUMNS = (
    "file_id",
    "tenant_id",
    "position",
    "page_from",
    "page_to",
    "char_start",
    "char_end",
    "text",
    "text_hash",
    "space_id",
    "embedding",
    "declared_language",
)


class PostgresFileWork:
    """Claims files and writes what became of them. Implements the FileWork port."""

    def __init__(self, pool: asyncpg.Pool, *, lease_seconds: float, recipe: Recipe) -> None:
        """``recipe`` is what files are processed by; the part of it that concerns a file is recorded with it."""
        self._pool = pool
        self._lease_seconds = lease_seconds
        self._last_turn = ""
        self._recipe = recipe

    async def announce_recipe(self) -> None:
        """Have the sweep find the files that were processed by another recipe than this one."""
        await self._pool.execute(load_query(_PACKAGE, "announce_recipe"), asdict(self._recipe))

    async def claim(self, limit: int, *, large: int | None = None) -> list[ClaimedFile]:
        """Take up to ``limit`` files that want work, each under a new lease, at most ``large`` of them large ones.

        Tenants take turns, so that one's many files do not hold up another's few.
        """
        most_large = limit if large is None else large
        query = load_query(_PACKAGE, "claim_files")
        rows = await self._pool.fetch(query, limit, self._lease_seconds, most_large, self._last_turn)
        claims = [_claimed(row) for row in rows]
        if claims:
            self._last_turn = claims[-1].tenant_id
        return claims

    async def renew(self, claim: ClaimedFile) -> None:
        """Extend the lease. Raises LeaseLostError."""
        await self._report(claim, None, None, None)

    async def report(self, claim: ClaimedFile, stage: str, done: int = 0, total: int = 0) -> None:
        """Show progress and extend the lease. Raises LeaseLostError."""
        await self._report(claim, stage, done, total)

    async def keep(self, claim: ClaimedFile, space_id: int, vectors: Mapping[bytes, Vector]) -> None:
        """Keep vectors by their text's hash until the file has ended. Does nothing when the lease is lost."""
        stored = [PgVector(vector) for vector in vectors.values()]
        await self._pool.execute(load_query(_PACKAGE, "keep_vectors"), *_fence(claim), space_id, list(vectors), stored)

    async def keep_descriptions(
        self, claim: ClaimedFile, describer: str, descriptions: Mapping[str, ImageDescription]
    ) -> None:
        """Keep descriptions by their image's digest until the file has ended. Does nothing when the lease is lost."""
        rows = [
            {"number": number, "digest": digest, "text": found.text, "spans": packed(found.spans)}
            for number, (digest, found) in enumerate(descriptions.items(), start=1)
        ]
        query = load_query(_PACKAGE, "keep_descriptions")
        await self._pool.execute(query, *_fence(claim), claim.tenant_id, describer, rows)

    async def complete(self, claim: ClaimedFile, result: FileResult, chunks: Sequence[EmbeddedChunk]) -> None:
        """Replace the chunks and what is kept of pages and images, end the file COMPLETED and announce it.

        It is one transaction. Raises LeaseLostError, also where the result's space is active no more.

        The status is written first: that locks the row, checks the lease, and leaves nothing to undo if it is lost.
        Chunks that are already there just so are left alone, which spares the vector index.
        """
        languages = await self._languages(result, chunks)
        async with self._pool.acquire() as connection, connection.transaction():
            _require(
                await connection.fetchval(
                    load_query(_PACKAGE, "complete_file"),
                    *_fence(claim),
                    _revision(claim),
                    result.media_type,
                    result.page_count,
                    result.outcome,
                    result.outcome_reason,
                    asdict(self._recipe.of(result.media_type)),
                    result.space_id,
                )
            )
            query = load_query(_PACKAGE, "list_chunk_identities")
            present = await connection.fetch(query, claim.file_id, result.space_id)
            if [tuple(row) for row in present] != list(map(_identity, chunks, repeat(result), languages)):
                await connection.execute(load_query(_PACKAGE, "delete_chunks"), claim.file_id)
                await connection.copy_records_to_table(
                    "module_embeddings_file_chunk",
                    columns=_CHUNK_COLUMNS,
                    records=_chunk_rows(claim, result, chunks, languages),
                )
            await _replace_pages(connection, claim, result)
            await connection.execute(load_query(_PACKAGE, "delete_kept_vectors"), claim.file_id)
            await _announce(connection, FILE_EMBEDDED, claim)

    async def fail(self, claim: ClaimedFile, code: str, message: str) -> None:
        """End the file FAILED, without chunks, and announce it. Raises LeaseLostError."""
        async with self._pool.acquire() as connection, connection.transaction():
            query = load_query(_PACKAGE, "fail_file")
            recipe = asdict(self._recipe.of(ALL_READERS))
            _require(await connection.fetchval(query, *_fence(claim), _revision(claim), code, message, recipe))
            await connection.execute(load_query(_PACKAGE, "delete_kept_vectors"), claim.file_id)
            await _announce(connection, FILE_EMBEDDING_FAILED, claim)

    async def give_back(
        self, claim: ClaimedFile, code: str, message: str, *, delay_seconds: float, counts: bool
    ) -> None:
        """Return the file to the queue after a passing fault, which stays visible, unless it was asked for anew."""
        await self._give_back(claim, delay_seconds, code, message, counts)

    async def release(self, claim: ClaimedFile) -> None:
        """Return the file to the queue at once, as if it had not been claimed."""
        await self._give_back(claim, 0.0, None, None, False)

    async def set_aside(self, claim: ClaimedFile) -> None:
        """Return the file to the queue likewise, as a large one, until it is asked for anew."""
        await self._give_back(claim, 0.0, None, None, False, large=True)

    async def forget(self, claim: ClaimedFile) -> None:
        """Remove the file and its chunks, and announce it. Raises LeaseLostError."""
        async with self._pool.acquire() as connection, connection.transaction():
            _require(await connection.fetchval(load_query(_PACKAGE, "forget_file"), *_fence(claim)))
            await _announce(connection, FILE_EMBEDDING_REMOVED, claim)

    async def _languages(self, result: FileResult, chunks: Sequence[EmbeddedChunk]) -> list[str | None]:
        """What the words of each chunk do not decide of its language: what the file's metadata or its passages say."""
        if result.declared_language is not None or not chunks:
            return [result.declared_language] * len(chunks)
        texts = [embedded.chunk.text for embedded in chunks]
        told = dict(await self._pool.fetch(load_query(_PACKAGE, "tell_languages"), texts))
        return [told.get(place) for place in range(1, len(texts) + 1)]

    async def _report(self, claim: ClaimedFile, stage: str | None, done: int | None, total: int | None) -> None:
        query = load_query(_PACKAGE, "report_file")
        _require(await self._pool.fetchval(query, *_fence(claim), self._lease_seconds, stage, done, total))

    async def _give_back(
        self,
        claim: ClaimedFile,
        delay: float,
        code: str | None,
        message: str | None,
        counts: bool,
        *,
        large: bool = False,
    ) -> None:
        query = load_query(_PACKAGE, "give_back_file")
        await self._pool.execute(query, *_fence(claim), delay, code, message, counts, large)


def _claimed(row: asyncpg.Record) -> ClaimedFile:
    fields = dict(row)
    names = ("media_type", "size_bytes", "storage_key", "revision", "language", "by_line")
    context = {name: fields.pop(name) for name in names}
    return ClaimedFile(**fields, context=None if context["revision"] is None else FileContext(**context))


def _revision(claim: ClaimedFile) -> int:
    """The revision that was reconciled. A file that is gone is forgotten, never completed or failed."""
    if claim.context is None:
        raise LeaseLostError
    return claim.context.revision


def _fence(claim: ClaimedFile) -> tuple[object, ...]:
    return claim.file_id, claim.lease_token, claim.generation


def _require(file_id: int | None) -> None:
    """Refuse to go on when a fenced statement touched no row."""
    if file_id is None:
        raise LeaseLostError


def _identity(embedded: EmbeddedChunk, result: FileResult, language: str | None) -> tuple[object, ...]:
    chunk = embedded.chunk
    return (
        chunk.position,
        chunk.page_from,
        chunk.page_to,
        chunk.char_start,
        chunk.char_end,
        chunk.text_hash,
        result.space_id,
        language,
    )


def _chunk_rows(
    claim: ClaimedFile, result: FileResult, chunks: Sequence[EmbeddedChunk], languages: Sequence[str | None]
) -> Iterator[tuple[object, ...]]:
    """Rows in the order of ``_CHUNK_COLUMNS``."""
    for embedded, language in zip(chunks, languages, strict=True):
        chunk = embedded.chunk
        yield (
            claim.file_id,
            claim.tenant_id,
            chunk.position,
            chunk.page_from,
            chunk.page_to,
            chunk.char_start,
            chunk.char_end,
            chunk.text,
            chunk.text_hash,
            result.space_id,
            embedded.vector,
            language,
        )


async def _replace_pages(connection: asyncpg.Connection, claim: ClaimedFile, result: FileResult) -> None:
    await connection.execute(load_query(_PACKAGE, "delete_pages"), claim.file_id)
    await connection.copy_records_to_table(
        "module_embeddings_file_page",
        columns=("file_id", "number", "kind", "width", "height", "unit", "spans"),
        records=(
            (claim.file_id, page.number, page.kind, at.width, at.height, at.unit, packed(at.spans))
            if (at := page.layout)
            else (claim.file_id, page.number, page.kind, None, None, None, None)
            for page in result.pages
        ),
    )
    await connection.copy_records_to_table(
        "module_embeddings_file_image",
        columns=("file_id", "position", "tenant_id", "digest", "describer", "text", "spans", "error"),
        records=(
            (
                claim.file_id,
                position,
                claim.tenant_id,
                bytes.fromhex(digest),
                result.describer,
                found.text,
                packed(found.spans),
                found.error,
            )
            for position, (digest, found) in enumerate(result.descriptions.items())
        ),
    )


async def _announce(connection: asyncpg.Connection, type_: EventType, claim: ClaimedFile) -> None:
    event = new_event(type_, claim.file_id, claim.name, claim.tenant_id)
    await append_events(connection, OUTBOX, EMBEDDINGS_EVENTS, [event])
