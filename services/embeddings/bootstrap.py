"""The composition root of the embeddings service: the only module that builds adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import asyncpg
from fastapi import FastAPI

from contracts.events.files import FILE_DELETED, FILE_UPLOADED
from contracts.events.topics import FILES_EVENTS
from services.chassis.http.app import create_app
from services.chassis.messaging.intake import Intake
from services.chassis.messaging.relay import OutboxRelay
from services.chassis.models.gemini import GeminiVision
from services.chassis.models.model_settings import ModelSettings
from services.chassis.models.registry import build_document_embedder, get_space
from services.chassis.postgres.pool import create_pool
from services.embeddings.adapters.chunking import StructuralChunker
from services.embeddings.adapters.describers.gemini import GeminiImageDescriber
from services.embeddings.adapters.describers.ocr import OcrImageDescriber
from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.sandbox import SandboxedExtractor
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.embeddings.adapters.postgres.file_work import OUTBOX, PostgresFileWork
from services.embeddings.adapters.postgres.known_vectors import PostgresKnownVectors
from services.embeddings.adapters.postgres.spaces import join_space
from services.embeddings.adapters.storage import StoredObjects
from services.embeddings.application.embed_file import EmbedFile
from services.embeddings.application.process_claim import ProcessClaim
from services.embeddings.entrypoints.schedule import every, measure, sweep
from services.embeddings.entrypoints.worker import Worker, log_fault
from services.embeddings.settings import EmbeddingsSettings, WorkerSettings

CONSUMER_GROUP = "embeddings"


@asynccontextmanager
async def build_worker(settings: WorkerSettings) -> AsyncIterator[Worker]:
    """A worker with everything it needs, closed at the end."""
    models = settings.model_settings()
    async with AsyncExitStack() as stack:
        pool: asyncpg.Pool = await stack.enter_async_context(
            await create_pool(
                settings.embeddings_database_url,
                application_name="cauce-worker",
                max_size=2 * settings.worker_concurrency + 1,
            )
        )
        embedder = build_document_embedder(get_space(settings.embedding_space), models)
        stack.push_async_callback(embedder.aclose)
        extractor = SandboxedExtractor(ExtractionLimits())
        stack.push_async_callback(extractor.aclose)
        describer = _describer(settings, models)
        stack.push_async_callback(describer.aclose)
        work = PostgresFileWork(pool, lease_seconds=settings.lease_seconds)
        embed_file = EmbedFile(
            work=work,
            known_vectors=PostgresKnownVectors(pool),
            objects=StoredObjects(settings.storage_url),
            extractor=extractor,
            describer=describer,
            chunker=StructuralChunker(),
            embedder=embedder,
            space_id=await join_space(pool, embedder.space),
        )
        process = ProcessClaim(
            embed_file=embed_file,
            work=work,
            lease_seconds=settings.lease_seconds,
            max_attempts=settings.max_attempts,
            on_fault=log_fault,
        )
        yield Worker(
            work,
            process,
            concurrency=settings.worker_concurrency,
            poll_seconds=settings.poll_seconds,
            shutdown_seconds=settings.shutdown_seconds,
        )


def _describer(settings: WorkerSettings, models: ModelSettings) -> GeminiImageDescriber | OcrImageDescriber:
    if settings.image_describer == "gemini":
        return GeminiImageDescriber(GeminiVision(models))
    return OcrImageDescriber()


def build_app(settings: EmbeddingsSettings) -> FastAPI:
    """The service's HTTP application; its intake, relay and schedule run as long as it does."""
    relay = OutboxRelay(settings.embeddings_database_url, OUTBOX, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with await create_pool(settings.embeddings_database_url, application_name="cauce-embeddings") as pool:
            await join_space(pool, get_space(settings.embedding_space))
            mirror = PostgresFileMirror(pool)
            intake = Intake(
                settings,
                group_id=CONSUMER_GROUP,
                topics=[FILES_EVENTS],
                known_types=lambda: {str(FILE_UPLOADED), str(FILE_DELETED)},
                handle=mirror.mark,
            )
            app.state.pool = pool
            app.state.intake = intake
            tasks = [
                asyncio.create_task(relay.run()),
                asyncio.create_task(intake.run()),
                asyncio.create_task(every(settings.sweep_seconds, "sweep", lambda: sweep(mirror))),
                asyncio.create_task(every(settings.measure_seconds, "measure", lambda: measure(mirror))),
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.gather(*tasks, return_exceptions=True)

    async def database() -> str | None:
        await app.state.pool.fetchval("SELECT 1", timeout=2)
        return None

    async def intake_fault() -> str | None:
        fault: str | None = app.state.intake.fault()
        return fault

    async def relay_fault() -> str | None:
        return relay.fault()

    app = create_app(
        "Cauce embeddings",
        service="embeddings",
        settings=settings,
        lifespan=lifespan,
        checks=lambda: {"database": database, "intake": intake_fault, "relay": relay_fault},
    )
    return app
