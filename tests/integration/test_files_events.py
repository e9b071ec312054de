"""A file's status as a stream, and the service's own health and its events on a real broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from contracts.events.envelope import Event, MalformedEventError, read_event
from contracts.events.files import FILE_DELETED, FILE_UPLOADED
from contracts.events.topics import FILES_EVENTS
from services.chassis.messaging.fetch import fetch
from tests.support.broker import Kafka
from tests.support.files import PATIENCE, TENANT, FilesServer, Link, eventually, running_files
from tests.support.postgres import Database


@pytest.fixture
async def files(database: Database, tmp_path: Path) -> AsyncIterator[FilesServer]:
    async with running_files(database, tmp_path / "objects", max_event_streams=1) as server:
        yield server


@asynccontextmanager
async def followed(files: FilesServer, file_id: int) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The events of a file; they end when the service ends them."""
    async with asyncio.timeout(PATIENCE), files.http.stream("GET", f"/files/{file_id}/events") as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield parsed(answer)


async def parsed(answer: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    event = None
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        elif line.startswith("data: "):
            assert event == "status"
            yield json.loads(line.removeprefix("data: "))


async def test_a_followed_file_is_shown_at_every_change_until_its_end(files: FilesServer) -> None:
    file_id = await files.register()
    async with followed(files, file_id) as events:
        assert (await anext(events))["status"] == "UPLOADING"
        await files.http.put(f"/files/{file_id}/content", content=b"x")
        assert (await anext(events))["status"] == "PENDING"
        lease = {"lease_token": "0190163d-8694-739b-aea5-966c26f8ad90", "stage": "EXTRACTING"}
        await files.query(
            "INSERT INTO module_embeddings_files_file (file_id, tenant_id, name, status, lease_token, stage,"
            " lease_expires_at) VALUES ($1, $2, 'a', 'PROCESSING', $3, $4, now())",
            file_id,
            TENANT,
            *lease.values(),
        )
        working = await anext(events)
        assert (working["status"], working["stage"]) == ("PROCESSING", "EXTRACTING")
        await files.query(
            "UPDATE module_embeddings_files_file SET lease_token = NULL, lease_expires_at = NULL, status = 'PENDING'"
        )
        assert (await anext(events))["status"] == "PENDING"
        await files.process(file_id, "COMPLETED", revision=1)
        last = await anext(events)
        assert (last["status"], last["outcome"]) == ("COMPLETED", "INDEXED")
        assert last == await files.file(file_id)
        assert await anext(events, None) is None


async def test_following_a_file_that_ended_shows_it_once(files: FilesServer) -> None:
    file_id = await files.upload()
    await files.process(file_id, "FAILED", revision=1, error_code="CORRUPT")

    async with followed(files, file_id) as events:
        assert [event["error_code"] async for event in events] == ["CORRUPT"]


async def test_following_a_file_ends_when_it_is_deleted(files: FilesServer) -> None:
    file_id = await files.register()
    async with followed(files, file_id) as events:
        await anext(events)
        await files.http.delete(f"/files/{file_id}")

        assert await anext(events, None) is None


async def test_streams_beyond_the_allowed_number_are_refused_until_one_ends(files: FilesServer) -> None:
    file_id = await files.register()
    async with followed(files, file_id) as events:
        await anext(events)
        refused = await files.http.get(f"/files/{file_id}/events")
        assert (refused.status_code, refused.json()["code"]) == (503, "TOO_MANY_REQUESTS")

    async def has_place() -> bool:
        async with files.http.stream("GET", f"/files/{file_id}/events") as answer:
            return answer.status_code == 200

    await eventually(has_place)


async def test_a_stream_ends_when_the_database_goes_away(database: Database, tmp_path: Path) -> None:
    address = urlsplit(database.files_url)
    link = Link(address.port or 0)
    await link.mend()
    linked = address._replace(netloc=f"{address.username}@127.0.0.1:{link.port}").geturl()
    async with running_files(database, tmp_path / "objects", files_database_url=linked) as files:
        file_id = await files.register()
        async with followed(files, file_id) as events:
            await anext(events)
            await link.cut()

            assert await anext(events, None) is None


async def test_a_service_without_its_broker_works_but_is_not_ready(files: FilesServer) -> None:
    await files.upload()

    ready = await files.http.get("/health/ready")

    assert (ready.status_code, set(ready.json()["faults"])) == (503, {"relay"})


async def test_what_happens_to_files_is_published(database: Database, tmp_path: Path, kafka: Kafka) -> None:
    broker = kafka.settings.model_dump()
    async with running_files(database, tmp_path / "objects", **broker) as files:
        name = f"año {uuid4()}.txt"
        file_id = await files.upload(name=name)
        await files.http.delete(f"/files/{file_id}")

        async def is_ready() -> bool:
            return (await files.http.get("/health/ready")).status_code == 200

        async def is_published() -> bool:
            return await files.events() == []

        await eventually(is_ready)
        await eventually(is_published)

    uploaded, deleted = [event for event in await published(kafka) if event.name == name]
    assert (uploaded.type, deleted.type) == (FILE_UPLOADED, FILE_DELETED)
    for event in (uploaded, deleted):
        assert (event.aggregate_id, event.key, event.tenant_id) == (file_id, str(file_id), TENANT)


async def published(kafka: Kafka) -> list[Event]:
    """Every event of the topic. Other tests put theirs there, and records that are no events."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partitions = [TopicPartition(FILES_EVENTS.name, number) for number in range(FILES_EVENTS.partitions)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        found = []
        for partition in partitions:
            await consumer.seek_to_beginning(partition)
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            for record in await fetch(kafka.settings, consumer, 500, timeout_ms=20):
                with suppress(MalformedEventError):
                    found.append(read_event(record.headers, record.value))
        return found
    finally:
        await consumer.stop()
