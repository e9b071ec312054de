"""A worker's use case over real adapters: real tables, real reading, and a provider that counts what it is paid."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg

from services.chassis.models.limiter import ProcessQuota
from services.chassis.models.registry import GEMINI_EMBEDDING_001, ModelSettings, build_document_embedder, build_vision
from services.chassis.postgres.pool import create_pool
from services.embeddings.adapters.chunking import StructuralChunker
from services.embeddings.adapters.describers.gemini import GeminiImageDescriber
from services.embeddings.adapters.extractors.sandbox import SandboxedExtractor
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.embeddings.adapters.postgres.file_work import PostgresFileWork
from services.embeddings.adapters.postgres.known_descriptions import PostgresKnownDescriptions
from services.embeddings.adapters.postgres.known_vectors import PostgresKnownVectors
from services.embeddings.adapters.postgres.spaces import join_space
from services.embeddings.adapters.storage import StoredObjects
from services.embeddings.application.embed_file import EmbedFile
from services.embeddings.domain.file_work import Recipe
from tests.support.gemini_server import API_KEY, GeminiServer
from tests.support.postgres import Database
from tests.support.source_files import RECIPE, replace_file, store_file, uploaded


@dataclass
class World:
    """One worker's use case over real adapters, and a look at what it did."""

    source: asyncpg.Connection
    pool: asyncpg.Pool
    folder: Path
    gemini: GeminiServer
    use_case: EmbedFile
    mirror: PostgresFileMirror

    async def store(self, data: bytes, name: str = "manual.pdf") -> int:
        """Store a file and process it. Return its id."""
        (self.folder / name).write_bytes(data)
        file_id = await store_file(self.source, name, size=len(data))
        await self.mirror.mark([uploaded(file_id)])
        await self.work()
        return file_id

    async def again(self, file_id: int) -> None:
        """Process it again, as after a retry or new bytes."""
        await replace_file(self.source, file_id)
        await self.mirror.mark([uploaded(file_id)])
        await self.work()

    async def work(self, recipe: Recipe = RECIPE) -> None:
        """Process what waits, as a worker of that recipe."""
        work = PostgresFileWork(self.pool, lease_seconds=60, recipe=recipe)
        await work.announce_recipe()
        chunker = StructuralChunker(recipe.chunk_size, recipe.chunk_overlap)
        use_case = replace(self.use_case, work=work, chunker=chunker)
        for claim in await work.claim(10):
            await use_case(claim)

    async def status(self, file_id: int) -> dict[str, Any]:
        """What is published of a file."""
        query = "SELECT * FROM module_embeddings_files_status WHERE file_id = $1"
        row = dict(await self.source.fetchrow(query, file_id))
        return row | {"page_kinds": json.loads(row["page_kinds"] or "null")}

    async def texts(self, file_id: int) -> list[str]:
        """Its chunks in order."""
        query = "SELECT text FROM module_embeddings_file_chunk WHERE file_id = $1 ORDER BY position"
        return [row["text"] for row in await self.source.fetch(query, file_id)]

    def paid(self) -> tuple[int, int]:
        """Images described and texts embedded since the last look."""
        images, calls = self.gemini.calls("generateContent"), self.gemini.calls("batchEmbedContents")
        texts = sum(len(call.texts) for call in calls)
        self.gemini.requests.clear()
        return len(images), texts


@asynccontextmanager
async def running_worker(database: Database, extractor: SandboxedExtractor, folder: Path) -> AsyncIterator[World]:
    """The use case over the database; the files' bytes lie in the folder."""
    source = await asyncpg.connect(database.admin_url)
    pool = await create_pool(database.embeddings_url, application_name="test")
    with GeminiServer() as gemini:
        models = ModelSettings(
            gemini_api_key=API_KEY,
            gemini_base_url=gemini.url,
            gemini_deadline_seconds=5,
            gemini_longest_pause_seconds=0.05,
        )
        quota = ProcessQuota(4)
        embedder = build_document_embedder(GEMINI_EMBEDDING_001, models, quota)
        describer = GeminiImageDescriber(build_vision(models, quota), "gemini")
        use_case = EmbedFile(
            work=PostgresFileWork(pool, lease_seconds=60, recipe=RECIPE),
            known_vectors=PostgresKnownVectors(pool),
            known_descriptions=PostgresKnownDescriptions(pool),
            objects=StoredObjects(f"file://{folder}"),
            extractor=extractor,
            describer=describer,
            chunker=StructuralChunker(),
            embedder=embedder,
            space_id=await join_space(pool, GEMINI_EMBEDDING_001),
        )
        yield World(source, pool, folder, gemini, use_case, PostgresFileMirror(pool))
        await describer.aclose()
        await embedder.aclose()
    await pool.close()
    await source.close()
