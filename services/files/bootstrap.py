"""The composition root of the files service: the only module that builds adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import asyncpg
from fastapi import FastAPI

from services.chassis.http.app import create_app
from services.chassis.http.slots import Slots
from services.chassis.messaging.relay import OutboxRelay
from services.chassis.postgres.migrations import database_fault
from services.chassis.postgres.pool import create_pool
from services.chassis.resource_types import ResourceType, load_resource_types
from services.chassis.schedule import every
from services.chassis.stopping import end
from services.files.adapters.postgres.files import OUTBOX, PostgresFiles, PostgresUpkeep
from services.files.adapters.postgres.resources import PostgresResources
from services.files.adapters.storage import open_storage
from services.files.application.collect_garbage import CollectGarbage
from services.files.application.delete_file import DeleteFile
from services.files.application.delete_resource import DeleteResource
from services.files.application.find_files import FindFiles
from services.files.application.get_resource import GetResource
from services.files.application.import_resources import ImportResources
from services.files.application.list_resources import ListResources
from services.files.application.ports import ObjectStorage
from services.files.application.put_resource import PutResource
from services.files.application.read_content import ReadContent
from services.files.application.receive_file import ReceiveFile
from services.files.application.register_file import RegisterFile
from services.files.application.retry_file import RetryFile
from services.files.application.retry_resource import RetryResource
from services.files.application.store_content import StoreContent
from services.files.entrypoints.http.bodies import AnswerSlots, BodySlots, Pace
from services.files.entrypoints.http.resources import MAX_IMPORTS, CatalogueSurface, resources_router
from services.files.entrypoints.http.routes import FilesSurface, router
from services.files.entrypoints.upkeep import keep_up
from services.files.settings import FilesSettings

EXTENSIONS_PER_IDLE_TIME = 20
"""How often, within the time that an upload may be idle, one that is not has its time started again."""


def build_app(settings: FilesSettings) -> FastAPI:
    """The service's HTTP application; its relay and its janitor run as long as it does."""
    storage = open_storage(settings.storage_url)
    relay = OutboxRelay(settings.files_database_url, OUTBOX, settings)
    types = load_resource_types(settings.resource_types_dir)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # No connection is demanded at the start: a database that is away makes the service not ready, not dead.
        async with await create_pool(
            settings.files_database_url,
            where="CAUCE_FILES_DATABASE_URL",
            application_name="cauce-files",
            min_size=0,
            reset_on_release=False,
            wait_seconds=settings.database_wait_seconds,
            statement_seconds=settings.database_statement_seconds,
        ) as pool:
            app.state.pool = pool
            app.state.files = _surface(settings, pool, storage)
            app.state.catalogue = _catalogue(settings, pool, types)
            collect = CollectGarbage(PostgresUpkeep(pool), storage)
            app.state.tasks = {
                "relay": asyncio.create_task(relay.run()),
                "janitor": asyncio.create_task(every(settings.upkeep_seconds, "upkeep", partial(keep_up, collect))),
            }
            try:
                yield
            finally:
                await end(*app.state.tasks.values())

    async def relay_fault() -> str | None:
        return "stopped" if app.state.tasks["relay"].done() else relay.fault()

    async def janitor_fault() -> str | None:
        return "stopped" if app.state.tasks["janitor"].done() else None

    async def storage_fault() -> str | None:
        await storage.check()
        return None

    app = create_app(
        "Cauce files",
        service="files",
        settings=settings,
        lifespan=lifespan,
        checks=lambda: {
            "database": lambda: database_fault(app.state.pool),
            "relay": relay_fault,
            "janitor": janitor_fault,
            "storage": storage_fault,
        },
    )
    app.include_router(router)
    app.include_router(resources_router(types))
    return app


def _surface(settings: FilesSettings, pool: asyncpg.Pool, storage: ObjectStorage) -> FilesSurface:
    idle_seconds = settings.upload_idle_seconds
    pace = _pace(settings)
    files = PostgresFiles(
        pool,
        upload_time=timedelta(seconds=idle_seconds),
        grace_time=timedelta(seconds=settings.storage_grace_seconds),
    )
    store = StoreContent(files, storage, settings.upload_max_bytes, idle_seconds / EXTENSIONS_PER_IDLE_TIME)
    return FilesSurface(
        register=RegisterFile(files),
        receive=ReceiveFile(store, files),
        store=store,
        find=FindFiles(files),
        read=ReadContent(files, storage),
        delete=DeleteFile(files),
        retry=RetryFile(files),
        upload_slots=BodySlots("uploads", settings.max_uploads, pace),
        stream_slots=Slots("open streams", settings.max_event_streams),
        download_slots=AnswerSlots("downloads", settings.max_downloads, pace),
        pace=pace,
        poll_seconds=settings.status_poll_seconds,
        embeddings_url=settings.embeddings_url,
    )


def _catalogue(settings: FilesSettings, pool: asyncpg.Pool, types: Mapping[str, ResourceType]) -> CatalogueSurface:
    resources = PostgresResources(pool)
    pace = _pace(settings)
    return CatalogueSurface(
        put=PutResource(types, resources),
        get=GetResource(types, resources),
        delete=DeleteResource(types, resources),
        list=ListResources(types, resources),
        retry=RetryResource(types, resources),
        import_=ImportResources(types, resources),
        import_slots=BodySlots("batches", MAX_IMPORTS, pace),
        pace=pace,
    )


def _pace(settings: FilesSettings) -> Pace:
    return Pace(settings.upload_idle_seconds, settings.upload_grace_seconds, settings.upload_least_rate)
