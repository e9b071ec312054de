"""Builds the search service: the only module that knows which adapter stands behind a port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial

import asyncpg
from fastapi import FastAPI

from services.chassis.http.app import HealthCheck, create_app
from services.chassis.http.body_limit import BodyLimit
from services.chassis.kernel.errors import ConfigurationError
from services.chassis.models.model_settings import ModelSettings
from services.chassis.models.registry import KNOWN_SPACES, build_language_model, build_query_embedder
from services.chassis.models.space import EmbeddingSpace
from services.chassis.observability import get_logger
from services.chassis.postgres.migrations import database_fault
from services.chassis.postgres.pool import create_pool
from services.chassis.resource_types import load_resource_types
from services.chassis.schedule import every
from services.chassis.stopping import end
from services.search.adapters.postgres.engine import Bounds
from services.search.adapters.postgres.file_chunks import PostgresFileChunkIndex, server_settings
from services.search.adapters.postgres.query_vectors import PostgresQueryVectors
from services.search.adapters.postgres.resources import PostgresResourceIndex
from services.search.adapters.postgres.spaces import PostgresSpaces
from services.search.adapters.postgres.wordings import PostgresWordings
from services.search.application.active_space import ActiveSpace
from services.search.application.build_context import BuildContext
from services.search.application.ports import QueryEmbedder
from services.search.application.query_vectors import QueryVectors
from services.search.application.questions import Questions
from services.search.application.read_file_chunks import ReadFileChunks
from services.search.application.read_resource import ReadResource
from services.search.application.retrieval import Retrieval
from services.search.application.search_file_chunks import SearchFileChunks
from services.search.application.search_resources import SearchResources
from services.search.application.techniques import AskModel
from services.search.domain.criteria import SearchMode
from services.search.domain.fusion import Fusion, FusionMethod
from services.search.entrypoints.http import context as context_routes
from services.search.entrypoints.http import resources as resources_routes
from services.search.entrypoints.http import routes
from services.search.entrypoints.watch_space import refresh_space, report_lexical
from services.search.settings import SearchSettings

# The embedder gives up first, for it knows why and when to try again.
_EMBEDDER_SHARE = 0.8
_PRUNE_SECONDS = 60.0
_STORED_VECTOR_SECONDS = 1  # beyond it the model is asked

_log = get_logger(__name__)


def build_app(settings: SearchSettings, models: ModelSettings) -> FastAPI:
    """The application. Its start is refused when the active embedding space is one that it cannot serve."""
    checks: dict[str, HealthCheck] = {}
    timeout = settings.search_timeout_seconds
    types = load_resource_types(settings.resource_types_dir)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as resources:
            # No connection is demanded at the start: a database that is away makes the service not ready, not dead.
            pool = await create_pool(
                settings.search_database_url,
                where="CAUCE_SEARCH_DATABASE_URL",
                application_name="cauce-search",
                min_size=0,
                max_size=settings.search_pool_size,
                server_settings=server_settings(settings.search_ef_search),
                reset_on_release=False,
            )
            resources.push_async_callback(pool.close)
            open_embedder = _embedder_opener(
                replace(models, gemini_deadline_seconds=_EMBEDDER_SHARE * timeout, gemini_waits_count=True), resources
            )
            active_space = ActiveSpace(PostgresSpaces(pool, timeout_seconds=timeout), open_embedder)
            await _first_refresh(active_space)
            bounds = Bounds(
                ef_search=settings.search_ef_search,
                exact_up_to=settings.search_exact_up_to,
                timeout_seconds=timeout,
                candidates=settings.search_candidates,
            )
            cached = settings.search_cached_characters
            index = PostgresFileChunkIndex(pool, bounds, cached_characters=cached)
            stored_vectors = PostgresQueryVectors(
                pool,
                rows=settings.search_stored_queries,
                unused_for=timedelta(days=settings.search_stored_queries_days),
                timeout_seconds=min(timeout, _STORED_VECTOR_SECONDS),
            )
            query_vectors = QueryVectors(
                stored_vectors, capacity=settings.search_cached_queries, timeout_seconds=timeout
            )
            resources.push_async_callback(query_vectors.aclose)
            watching = every(settings.search_space_poll_seconds, "refresh space", partial(refresh_space, active_space))
            pruning = every(_PRUNE_SECONDS, "prune query vectors", stored_vectors.prune)
            resources.push_async_callback(end, asyncio.create_task(watching), asyncio.create_task(pruning))
            questions = Questions(
                active_space,
                query_vectors,
                SearchMode(settings.search_mode),
            )
            fusion = Fusion(
                method=FusionMethod(settings.search_fusion),
                dense_weight=settings.search_dense_weight,
                neighbour_weight=settings.search_neighbour_weight,
                rank_constant=settings.search_rank_constant,
            )
            language_model = build_language_model(models)
            if language_model is not None:
                resources.push_async_callback(language_model.aclose)
            wordings = PostgresWordings(pool, timeout_seconds=timeout)
            language = models.language
            ask = AskModel(language_model, wordings, language.timeout_seconds, language.prices)
            retrieval = Retrieval(questions, ask, fusion)
            app.state.search_file_chunks = SearchFileChunks(retrieval, index)
            app.state.read_file_chunks = ReadFileChunks(index)
            resources_index = PostgresResourceIndex(pool, types, bounds, cached_characters=cached)
            app.state.search_resources = SearchResources(retrieval, resources_index, types)
            app.state.build_context = BuildContext(
                retrieval, app.state.search_file_chunks, app.state.search_resources, index
            )
            app.state.read_resource = ReadResource(resources_index, types)
            checks.update(_checks(pool, active_space))
            yield

    app = create_app("Cauce search", service="search", settings=settings, lifespan=lifespan, checks=lambda: checks)
    app.add_middleware(BodyLimit)
    app.include_router(routes.router)
    app.include_router(context_routes.router)
    app.include_router(resources_routes.router)
    return app


def _embedder_opener(models: ModelSettings, resources: AsyncExitStack) -> Callable[[EmbeddingSpace], QueryEmbedder]:
    """One embedder for each space, closed with the service."""
    embedders: dict[EmbeddingSpace, QueryEmbedder] = {}

    def open_embedder(space: EmbeddingSpace) -> QueryEmbedder:
        if space.name not in KNOWN_SPACES:
            raise ConfigurationError(
                "SPACE_MISMATCH",
                f"the active embedding space {space.name!r} is unknown to this release",
                where="module_embeddings_space",
                remedy="run the release that made it, or make a space that this one knows active: "
                + ", ".join(KNOWN_SPACES),
            )
        if space not in embedders:
            embedder = build_query_embedder(space, models)
            resources.push_async_callback(embedder.aclose)
            embedders[space] = embedder
        return embedders[space]

    return open_embedder


async def _first_refresh(active_space: ActiveSpace) -> None:
    """Refuse a space that cannot be served; go on without one while the database or the provider is away."""
    try:
        await active_space.refresh()
        report_lexical(active_space, known=None)
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever goes wrong, the space is asked for again
        _log.warning("space_not_read", error=f"{type(error).__name__}: {error}")


def _checks(pool: asyncpg.Pool, active_space: ActiveSpace) -> Mapping[str, HealthCheck]:
    async def embedding_space() -> str | None:
        return None if active_space.fault is None else str(active_space.fault)

    return {"database": partial(database_fault, pool, writes=False), "embedding_space": embedding_space}
