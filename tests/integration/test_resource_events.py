"""Catalogue events on a real broker: from the outbox into the mirror, and to the vectors of a running worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

import httpx2
import pytest
from aiokafka import AIOKafkaConsumer
from fastapi import FastAPI
from structlog.testing import capture_logs

from contracts.events.envelope import Event, EventType
from contracts.events.topics import CATALOG_EVENTS, DEAD_LETTERS
from services.chassis.kernel.identifiers import uuid7
from services.chassis.messaging.fetch import fetch
from services.chassis.messaging.kafka import client_options
from services.chassis.messaging.outbox import append_events
from services.chassis.messaging.relay import OutboxRelay
from services.chassis.postgres.pool import prepare_connection
from services.chassis.settings import HttpSettings
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.embeddings.application.process_claim import ProcessClaim
from services.embeddings.bootstrap import build_app
from services.embeddings.entrypoints import consume_events
from services.embeddings.entrypoints.consume_events import MarkOnEvents
from services.embeddings.entrypoints.http.routes import router
from services.embeddings.entrypoints.schedule import sweep
from services.embeddings.entrypoints.worker import Label, Worker
from services.embeddings.settings import EmbeddingsSettings
from tests.support.broker import Kafka
from tests.support.broker_requests import counted_requests
from tests.support.files import PATIENCE, eventually
from tests.support.postgres import Database, read_only
from tests.support.resources import TENANT, ResourceWorld, resource_world
from tests.support.source_files import store_file

OUTBOX = "module_files_outbox"
EVENTS = 500
ROUND_TRIPS = 0.05
"""Of the broker for an event, at most."""
STATEMENTS = 0.2
"""Of the worker for a resource, at most: batches are of a hundred."""


async def announce(world: ResourceWorld, *events: Event) -> None:
    """Put events into the catalogue's outbox."""
    await prepare_connection(world.source)
    async with world.source.transaction():
        await append_events(world.source, OUTBOX, CATALOG_EVENTS, events)


@asynccontextmanager
async def running_service(database: Database, kafka: Kafka) -> AsyncIterator[httpx2.AsyncClient]:
    """The embeddings service and the catalogue's relay."""
    addresses = {"embeddings_database_url": database.embeddings_url, "storage_url": "s3://none"}
    settings = EmbeddingsSettings(**addresses, tenant=TENANT, operator_access=True, **kafka.options)
    app = build_app(settings)
    relay = asyncio.create_task(OutboxRelay(database.files_url, OUTBOX, kafka.settings).run())
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://test") as http,
    ):
        yield http
    relay.cancel()
    with suppress(asyncio.CancelledError):
        await relay


@asynccontextmanager
async def running_worker(world: ResourceWorld) -> AsyncIterator[None]:
    process = ProcessClaim(world.embed, world.work, 60, max_attempts=5, on_fault=print)
    worker = Worker(
        world.work,
        process,
        kind="batch",
        label=Label.of_batch,
        concurrency=2,
        poll_seconds=0.05,
        shutdown_seconds=5,
    )
    stop = asyncio.Event()
    task = asyncio.create_task(worker.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def dead_letter(kafka: Kafka, event: Event) -> dict[str, str]:
    """The headers of the dead letter of an event, once it is there."""
    consumer = AIOKafkaConsumer(DEAD_LETTERS.name, auto_offset_reset="earliest", **client_options(kafka.settings))
    await consumer.start()
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                for record in await fetch(kafka.settings, consumer, 500, timeout_ms=20):
                    headers = {name: value.decode(errors="replace") for name, value in record.headers if value}
                    if headers.get("ce_id") == str(event.event_id):
                        return headers
    finally:
        await consumer.stop()


async def test_events_reach_the_vectors_and_what_nobody_declared_is_set_aside(database: Database, kafka: Kafka) -> None:
    async with resource_world(database) as world, running_service(database, kafka) as http, running_worker(world):
        good = await world.put("variable", 5, "Inlet flow")
        undeclared = replace(good, type=EventType("catalog", "UnheardOfChanged"), event_id=uuid7())
        future = replace(good, type=replace(good.type, version=2), event_id=uuid7())
        await announce(world, undeclared, future, good)
        assert await eventually(lambda: world.text("variable", 5)) == "# Inlet flow"
        for event in (undeclared, future):
            assert (await dead_letter(kafka, event))["dead_letter_reason"] == "UNKNOWN_TYPE"

        await announce(world, await world.delete("variable", 5))
        await eventually(lambda: _is_gone(world))
        assert (await http.post("/sweep")).json() == {"total": 0, "counts": {}}


async def test_events_wait_while_the_database_is_read_only_and_the_service_says_so(
    database: Database, kafka: Kafka
) -> None:
    async with resource_world(database) as world, running_service(database, kafka) as http:

        async def says(part: str, words: str) -> bool:
            return words in str((await http.get("/health/ready")).json().get("faults", {}).get(part))

        async with read_only(database, "cauce_embeddings"):
            await announce(world, await world.put("variable", 5, "Inlet flow"))
            await eventually(lambda: says("intake", "ReadOnlySQLTransactionError"))
            await eventually(lambda: says("database", "read-only"))
        await eventually(lambda: world.state("variable", 5))


async def test_many_events_cost_few_requests_of_the_broker_and_few_statements(database: Database, kafka: Kafka) -> None:
    async with resource_world(database) as world:
        await announce(world, *[await world.put("variable", number, f"V{number}") for number in range(1, EVENTS + 1)])

        async def are_marked() -> bool:
            return bool(await world.admin.fetchval("SELECT count(*) = $1 FROM module_embeddings_resource", EVENTS))

        with counted_requests() as requests:
            async with running_service(database, kafka):
                await eventually(are_marked)
        assert requests["produce"] > 0
        assert requests["produce"] + requests["commit"] <= EVENTS * ROUND_TRIPS
        world.statements.clear()
        await world.drain()
        assert len(world.statements) <= EVENTS * STATEMENTS


async def _is_gone(world: ResourceWorld) -> bool:
    return await world.state("variable", 5) is None


async def test_the_sweep_on_demand_counts_by_kind_and_reason(database: Database) -> None:
    async with resource_world(database) as world:
        await world.mark_and_drain(await world.put("variable", 5, "Flow"), await world.put("tag", 1, "water"))
        await store_file(world.admin)
        await world.delete("variable", 5)
        await world.delete("tag", 1)
        app = FastAPI()
        app.include_router(router)
        app.state.http_settings = HttpSettings(tenant=TENANT)
        app.state.operator_access = True
        app.state.sweep = partial(sweep, PostgresFileMirror(world.pool), world.mirror)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as http:
            answer = await http.post("/sweep")
    assert answer.json() == {
        "total": 3,
        "counts": {"file": {"MISSING": 1}, "tag": {"ORPHANED": 1}, "variable": {"ORPHANED": 1}},
    }


async def test_a_wide_fan_is_logged(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume_events, "WIDE_FAN", 2)
    async with resource_world(database) as world:
        await world.put("customer", 1, "Acme")
        await world.mark_and_drain(*[await world.put("variable", n, f"V{n}", customer=1) for n in (1, 2, 3)])
        handle = MarkOnEvents(files=None, resources=world.mirror)  # type: ignore[arg-type]
        with capture_logs() as logs:
            await handle([world.changed("customer", 1), world.changed("variable", 1)])
    assert [(entry["type"], entry["entity_id"], entry["readers"]) for entry in logs] == [("customer", 1, 3)]
