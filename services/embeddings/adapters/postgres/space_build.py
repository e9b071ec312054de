"""What the space that is built beside the active one lacks, as a work queue over the tables themselves.

A row of the active space that has no counterpart in the other is work. So a build goes on where it ended, and what is
written meanwhile is in it, without a list of what is to be done.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from uuid import uuid4

import asyncpg
from pgvector import Vector as PgVector

from services.chassis.models.space import EmbeddingSpace, Vector
from services.chassis.postgres.queries import load_query
from services.chassis.resource_types import ResourceType
from services.embeddings.adapters.postgres.vector_tables import vector_tables
from services.embeddings.application.space_ports import UnmadeBatch, UnmadeText

MOST_IN_BATCH = 64
REVISIT_SECONDS = 15.0
"""How often a worker that found nothing more looks again at what it has passed by: at what others left undone."""

_PACKAGE = "services.embeddings"


class PostgresSpaceBuild:
    """Claims rows that lack a vector, and writes it beside. Implements the SpaceBuild port.

    Each keeps in memory up to which row it has looked at, so that a claim does not read again all that is done.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        types: Mapping[str, ResourceType],
        *,
        lease_seconds: float,
        revisit_seconds: float = REVISIT_SECONDS,
    ) -> None:
        self._pool = pool
        self._tables = vector_tables(types)
        self._lease_seconds = lease_seconds
        self._revisit_seconds = revisit_seconds
        self._space_id: int | None = None
        self._looked_at: dict[str, int] = {}
        self._revisited = 0.0

    async def claim(self) -> UnmadeBatch | None:
        """Take some texts under a lease; None where no space is built, nothing is missing or the rate is used up."""
        row = await self._pool.fetchrow(load_query(_PACKAGE, "find_building_space"))
        if row is None or row["wait_seconds"] > 0 or row["texts_per_minute"] == 0:
            return None
        fields = dict(row)
        space_id, rate = fields.pop("id"), fields.pop("texts_per_minute")
        del fields["wait_seconds"]
        if space_id != self._space_id:
            self._space_id, self._looked_at = space_id, {}
        most = MOST_IN_BATCH if rate is None else min(MOST_IN_BATCH, math.ceil(rate / 60))
        for table in self._tables.values():
            token = uuid4()
            after = self._looked_at.get(table.kind, 0)
            rows = await self._pool.fetch(
                table.statement("claim_unmade"), space_id, after, most, token, self._lease_seconds
            )
            if rows:
                self._looked_at[table.kind] = rows[-1]["row_id"]
                if rate is not None:
                    await self._pool.execute(load_query(_PACKAGE, "use_building_rate"), space_id, len(rows))
                texts = tuple(UnmadeText(**row) for row in rows)
                return UnmadeBatch(table.kind, space_id, EmbeddingSpace(**fields), token, texts)
        if time.monotonic() - self._revisited > self._revisit_seconds:
            self._looked_at, self._revisited = {}, time.monotonic()
        return None

    async def renew(self, batch: UnmadeBatch) -> None:
        """Extend the lease."""
        await self._pool.execute(load_query(_PACKAGE, "renew_space_leases"), batch.token, self._lease_seconds)

    async def store(self, batch: UnmadeBatch, vectors: Sequence[tuple[UnmadeText, Vector]]) -> None:
        """Put vectors beside those of the active space, where the texts are still what they were.

        What got none is left alone until the lease runs out. Nothing is written once the space is built no more.

        The mirror's rows are locked first, as whoever writes a text anew does: so either this sees the new text, or the
        other sees these vectors and removes them.
        """
        table = self._tables[batch.kind]
        ids = [text.row_id for text, _ in vectors]
        async with self._pool.acquire() as connection, connection.transaction():
            if await connection.fetchval(load_query(_PACKAGE, "hold_building_space"), batch.space_id) is None:
                return
            owners = [row[0] for row in await connection.fetch(table.statement("lock_owners"), ids)]
            await connection.execute(
                table.statement("store_unmade"),
                ids,
                [text.text_hash for text, _ in vectors],
                [PgVector(vector) for _, vector in vectors],  # an array would be taken for one more dimension
                batch.space_id,
                owners,
            )
            stored = set(ids)
            left = [text.row_id for text in batch.texts if text.row_id not in stored]
            await connection.execute(load_query(_PACKAGE, "end_space_leases"), batch.token, left)

    async def release(self, batch: UnmadeBatch) -> None:
        """Give all of the batch back at once."""
        await self._pool.execute(load_query(_PACKAGE, "end_space_leases"), batch.token, [])
        first = batch.texts[0].row_id
        self._looked_at[batch.kind] = min(self._looked_at.get(batch.kind, first), first - 1)

    async def note_fault(self, batch: UnmadeBatch, fault: str | None) -> None:
        """Show why the building does not get on, or with None that it does."""
        await self._pool.execute(load_query(_PACKAGE, "note_building_fault"), batch.space_id, fault)
