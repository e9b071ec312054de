"""The composition root of the embeddings service: the only module that builds adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Protocol

import asyncpg
from fastapi import FastAPI

from contracts.events.files import FILE_DELETED, FILE_UPLOADED
from contracts.events.topics import CATALOG_EVENTS, DEAD_LETTERS, FILES_EVENTS
from services.chassis.http.app import create_app
from services.chassis.http.body_limit import BodyLimit
from services.chassis.http.slots import Slots
from services.chassis.messaging.intake import Intake
from services.chassis.messaging.relay import OutboxRelay
from services.chassis.models.limiter import CallQuota
from services.chassis.models.model_settings import ModelSettings
from services.chassis.models.registry import Embedder, build_document_embedder, build_vision, get_space
from services.chassis.models.space import EmbeddingSpace
from services.chassis.postgres.faults import passing_fault
from services.chassis.postgres.migrations import database_fault
from services.chassis.postgres.patience import Patience
from services.chassis.postgres.pool import create_pool
from services.chassis.resource_types import load_resource_types
from services.chassis.schedule import every
from services.chassis.stopping import end
from services.embeddings.adapters.chunking import StructuralChunker
from services.embeddings.adapters.describers.gemini import GeminiImageDescriber
from services.embeddings.adapters.describers.ocr import OcrImageDescriber
from services.embeddings.adapters.extractors.editions import readers
from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.sandbox import SandboxedExtractor
from services.embeddings.adapters.kafka.dead_letters import KafkaDeadLetters
from services.embeddings.adapters.postgres.call_quota import PostgresCallQuota
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.embeddings.adapters.postgres.file_pages import PostgresFilePages
from services.embeddings.adapters.postgres.file_work import OUTBOX, PostgresFileWork
from services.embeddings.adapters.postgres.known_descriptions import PostgresKnownDescriptions
from services.embeddings.adapters.postgres.known_vectors import PostgresKnownVectors
from services.embeddings.adapters.postgres.lexical import build_lexical, renew_languages, renew_words
from services.embeddings.adapters.postgres.resource_mirror import PostgresResourceMirror
from services.embeddings.adapters.postgres.resource_work import PostgresResourceWork
from services.embeddings.adapters.postgres.space_build import PostgresSpaceBuild
from services.embeddings.adapters.postgres.spaces import (
    PostgresSpaces,
    find_active_space,
    join_space,
    until_another_space,
)
from services.embeddings.adapters.storage import StoredObjects
from services.embeddings.application.build_space import BuildSpace
from services.embeddings.application.embed_file import EmbedFile
from services.embeddings.application.embed_resources import EmbedResources
from services.embeddings.application.find_highlight import FindHighlight
from services.embeddings.application.process_claim import C, LeasedWork, ProcessClaim
from services.embeddings.application.show_page import ShowPage
from services.embeddings.application.text_recipes import build_recipes
from services.embeddings.domain.file_work import Recipe
from services.embeddings.entrypoints.consume_events import MarkOnEvents
from services.embeddings.entrypoints.http.dead_letters import DeadLetterSurface
from services.embeddings.entrypoints.http.dead_letters import router as dead_letters_router
from services.embeddings.entrypoints.http.pages import PagesSurface
from services.embeddings.entrypoints.http.pages import router as pages_router
from services.embeddings.entrypoints.http.reindex import router as reindex_router
from services.embeddings.entrypoints.http.routes import router
from services.embeddings.entrypoints.schedule import measure, sweep
from services.embeddings.entrypoints.worker import Label, Loop, Queue, SpaceBuilder, Worker, WorkerGroup, log_fault
from services.embeddings.settings import EmbeddingsSettings, WorkerSettings

CONSUMER_GROUP = "embeddings"
CONSUMED = (FILES_EVENTS, CATALOG_EVENTS)
RENDERING_LIMITS = ExtractionLimits(wall_seconds=30, cpu_seconds=20)
"""Somebody waits for a page that is to be shown."""
SPACE_POLL_SECONDS = 1.0
"""How soon a worker sees that another space is active, or that one is to be built."""
JOIN_SECONDS = 2.0
"""How long the start waits for the database, to end there if it is in a space that this service cannot serve."""


@asynccontextmanager
async def build_worker(settings: WorkerSettings) -> AsyncIterator[WorkerGroup]:
    """Workers with everything they need, closed at the end."""
    models = settings.model_settings()
    async with AsyncExitStack() as stack:
        pool: asyncpg.Pool = await stack.enter_async_context(
            await create_pool(
                settings.embeddings_database_url,
                where="CAUCE_EMBEDDINGS_DATABASE_URL",
                application_name="cauce-worker",
                min_size=0,
                max_size=4 * settings.worker_concurrency + 1,
                reset_on_release=False,
            )
        )
        quota = PostgresCallQuota(pool, concurrency=models.gemini_concurrency, rates=models.gemini_quotas)
        open_embedder = _document_embedders(models, quota, stack)
        configured = open_embedder(get_space(settings.embedding_space)).space
        extractor = SandboxedExtractor(ExtractionLimits(), options=[settings.pdf_reader])
        stack.push_async_callback(extractor.aclose)
        describer = _describer(settings, models, quota)
        stack.push_async_callback(describer.aclose)
        recipe = Recipe(settings.chunk_size, settings.chunk_overlap, readers(settings.pdf_reader))
        types = load_resource_types(settings.resource_types_dir)
        objects = StoredObjects(settings.storage_url)

        patience = Patience(pool)

        async def open_workers() -> tuple[Sequence[Loop], Callable[[], Awaitable[None]]]:
            await patience.once_database_answers(partial(join_space, pool, configured))
            space_id, space = await patience.once_database_answers(partial(find_active_space, pool))
            embedder = open_embedder(space)
            is_held = partial(quota.is_out, space.model)
            files = PostgresFileWork(pool, lease_seconds=settings.lease_seconds, recipe=recipe)
            await patience.once_database_answers(files.announce_recipe)
            embed_file = EmbedFile(
                work=files,
                known_vectors=PostgresKnownVectors(pool),
                known_descriptions=PostgresKnownDescriptions(pool),
                objects=objects,
                extractor=extractor,
                describer=describer,
                chunker=StructuralChunker(settings.chunk_size, settings.chunk_overlap),
                embedder=embedder,
                space_id=space_id,
            )
            resources = PostgresResourceWork(pool, types, lease_seconds=settings.lease_seconds)
            recipes = build_recipes(types)
            embed_resources = EmbedResources(work=resources, embedder=embedder, recipes=recipes, space_id=space_id)
            build_space = BuildSpace(
                PostgresSpaceBuild(pool, types, lease_seconds=settings.lease_seconds),
                open_embedder,
                recipes,
                settings.lease_seconds,
            )
            workers = (
                _worker("file", Label.of_file, files, embed_file, settings, is_held=is_held),
                _worker("batch", Label.of_batch, resources, embed_resources, settings, is_held=is_held),
                SpaceBuilder(build_space, idle_seconds=SPACE_POLL_SECONDS),
            )
            return workers, partial(until_another_space, pool, space_id, poll_seconds=SPACE_POLL_SECONDS)

        yield WorkerGroup(open_workers, waits_for=lambda: str(patience.error), waits=quota.describe)


def _document_embedders(
    models: ModelSettings, quota: CallQuota, stack: AsyncExitStack
) -> Callable[[EmbeddingSpace], Embedder]:
    """Who embeds in a space, one for each, closed with the stack. Raises ConfigurationError."""
    embedders: dict[EmbeddingSpace, Embedder] = {}

    def open_embedder(space: EmbeddingSpace) -> Embedder:
        if space not in embedders:
            embedders[space] = build_document_embedder(space, models, quota)
            stack.push_async_callback(embedders[space].aclose)
        return embedders[space]

    return open_embedder


class _Work(Queue[C], LeasedWork[C], Protocol[C]):
    """Where claims come from, and what becomes of them."""


def _worker(
    kind: str,
    label: Callable[[C], Label],
    work: _Work[C],
    reconcile: Callable[[C], Awaitable[None]],
    settings: WorkerSettings,
    *,
    is_held: Callable[[], bool],
) -> Worker[C]:
    process = ProcessClaim(
        reconcile=reconcile,
        work=work,
        lease_seconds=settings.lease_seconds,
        max_attempts=settings.max_attempts,
        on_fault=log_fault(kind, label),
        passing_fault=passing_fault,
    )
    return Worker(
        work,
        process,
        kind=kind,
        label=label,
        concurrency=settings.worker_concurrency,
        poll_seconds=settings.poll_seconds,
        shutdown_seconds=settings.shutdown_seconds,
        is_held=is_held,
    )


def _describer(
    settings: WorkerSettings, models: ModelSettings, quota: CallQuota
) -> GeminiImageDescriber | OcrImageDescriber:
    if settings.image_describer == "gemini":
        return GeminiImageDescriber(build_vision(models, quota), models.gemini_vision_model)
    return OcrImageDescriber()


def build_app(settings: EmbeddingsSettings) -> FastAPI:
    """The service's HTTP application; its intake, relay and schedule run as long as it does."""
    types = load_resource_types(settings.resource_types_dir)
    relay = OutboxRelay(settings.embeddings_database_url, OUTBOX, settings)
    dead_letters = KafkaDeadLetters(settings, topic=DEAD_LETTERS, origins=CONSUMED, group_id=CONSUMER_GROUP)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        renderer = SandboxedExtractor(RENDERING_LIMITS, options=[settings.pdf_reader])
        # No connection is demanded at the start: a database that is away makes the service not ready, not dead.
        async with await create_pool(
            settings.embeddings_database_url,
            where="CAUCE_EMBEDDINGS_DATABASE_URL",
            application_name="cauce-embeddings",
            min_size=0,
            reset_on_release=False,
            wait_seconds=settings.database_wait_seconds,
        ) as pool:
            space = get_space(settings.embedding_space)
            app.state.pool = pool
            app.state.patience = Patience(pool)
            joining = asyncio.create_task(app.state.patience.once_database_answers(partial(join_space, pool, space)))
            app.state.pages = _pages(settings, pool, renderer)
            app.state.joining = joining
            app.state.dead_letters = DeadLetterSurface.over(dead_letters, to_operators=settings.operator_access)
            spaces = PostgresSpaces(pool, types)
            app.state.spaces = spaces
            app.state.sweep = partial(_not_joined, app.state.patience)
            app.state.reconciling = asyncio.create_task(reconcile(app, pool, spaces, joining))
            tasks = [asyncio.create_task(relay.run()), app.state.reconciling, joining]
            try:
                await asyncio.wait({joining}, timeout=JOIN_SECONDS)
                if joining.done():
                    joining.result()
                yield
            finally:
                await end(*tasks)
                await renderer.aclose()

    async def reconcile(app: FastAPI, pool: asyncpg.Pool, spaces: PostgresSpaces, joining: asyncio.Future[int]) -> None:
        """Take events and sweep, as soon as the database has told that its space is one to work in."""
        await joining
        files = PostgresFileMirror(pool)
        resources = PostgresResourceMirror(pool, types)
        known_types = {str(FILE_UPLOADED), str(FILE_DELETED)} | {
            str(event_type) for type_ in types.values() for event_type in (type_.changed, type_.deleted)
        }
        app.state.intake = Intake(
            settings,
            group_id=CONSUMER_GROUP,
            topics=CONSUMED,
            known_types=lambda: known_types,
            handle=MarkOnEvents(files, resources),
        )
        app.state.sweep = partial(sweep, files, resources)
        await asyncio.gather(
            app.state.intake.run(),
            every(settings.sweep_seconds, "sweep", app.state.sweep),
            every(settings.measure_seconds, "measure", partial(measure, files, resources)),
            every(settings.measure_seconds, "lexical index", partial(build_lexical, pool)),
            every(settings.measure_seconds, "words", partial(renew_words, pool)),
            every(settings.measure_seconds, "languages", partial(renew_languages, pool)),
            every(settings.measure_seconds, "dropped spaces", spaces.remove_dropped),
        )

    async def intake_fault() -> str | None:
        joining: asyncio.Future[int] = app.state.joining
        if not joining.done():
            return str(app.state.patience.error)
        joining.result()
        if app.state.reconciling.done():
            return "stopped"
        fault: str | None = app.state.intake.fault()
        return fault

    async def relay_fault() -> str | None:
        return relay.fault()

    app = create_app(
        "Cauce embeddings",
        service="embeddings",
        settings=settings,
        lifespan=lifespan,
        checks=lambda: {
            "database": lambda: database_fault(app.state.pool),
            "intake": intake_fault,
            "relay": relay_fault,
        },
    )
    app.add_middleware(BodyLimit)
    app.state.operator_access = settings.operator_access
    for each in (router, reindex_router, dead_letters_router, pages_router):
        app.include_router(each)
    return app


def _pages(settings: EmbeddingsSettings, pool: asyncpg.Pool, renderer: SandboxedExtractor) -> PagesSurface:
    pages = PostgresFilePages(pool)
    return PagesSurface(
        ShowPage(pages, StoredObjects(settings.storage_url), renderer),
        FindHighlight(pages),
        Slots("pages to be shown", settings.max_renderings),
    )


async def _not_joined(patience: Patience) -> dict[str, dict[str, int]]:
    raise patience.error
