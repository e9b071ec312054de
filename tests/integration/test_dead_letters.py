"""Records that the embeddings service sets aside: listed, shown and sent again, over a real broker and the command."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from random import randbytes
from typing import Any
from uuid import uuid4

import asyncpg
import httpx2
import pytest
import pytest_asyncio
import uvicorn
from aiokafka import AIOKafkaConsumer, TopicPartition
from typer.testing import CliRunner, Result

from cli.main import app as command
from contracts.events.files import FILE_UPLOADED
from contracts.events.topics import DEAD_LETTERS, FILES_EVENTS
from services.chassis.kernel.errors import UnavailableError
from services.chassis.kernel.scope import AccessScope
from services.chassis.messaging.kafka import client_options, ensure_topics, new_producer
from services.chassis.messaging.outbox import new_event
from services.embeddings.adapters.kafka.dead_letters import KafkaDeadLetters
from services.embeddings.application.read_dead_letters import ReadDeadLetters
from services.embeddings.bootstrap import build_app
from services.embeddings.settings import EmbeddingsSettings
from tests.support.broker import Kafka
from tests.support.postgres import Database, PostgresServer
from tests.support.undecodable import publish_in_one

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE = 60.0
HEADERS = [("ce_type", b"\xff\xfe"), ("ce_type", b"twice"), ("nothing", None)]
POISON = "ALTER TABLE module_embeddings_files_file ADD CONSTRAINT no_poison CHECK (name <> 'poison')"
MENDED = "ALTER TABLE module_embeddings_files_file DROP CONSTRAINT no_poison"
STORED = """
INSERT INTO module_files_file (tenant_id, name, media_type, state, revision, size_bytes, sha256, storage_key)
VALUES ($1, 'poison', 'text/plain', 'STORED', 1, 1, '', 'none') RETURNING id
"""


@dataclass
class Service:
    """The running service, its tenant, and what a test does from outside."""

    http: httpx2.AsyncClient
    kafka: Kafka
    database: Database
    tenant: str
    read: ReadDeadLetters

    async def publish(self, value: bytes | None, key: bytes, headers: list[tuple[str, Any]]) -> None:
        async with new_producer(self.kafka.settings) as producer:
            await producer.send_and_wait(FILES_EVENTS.name, value, key=key, headers=headers)

    async def letters(self, **page: Any) -> list[dict[str, Any]]:
        """All of them, page by page."""
        letters, after = [], None
        while True:
            params = page if after is None else page | {"after": after}
            answer = (await self.http.get("/dead-letters", params=params)).raise_for_status().json()
            letters += answer["dead_letters"]
            if (after := answer["next"]) is None:
                return letters

    async def letter_of(self, key: bytes, besides: int = 0) -> dict[str, Any]:
        """The newest letter of that key, once there are more than ``besides``."""
        found: list[dict[str, Any]] = []

        async def is_there() -> bool:
            found[:] = [it for it in await self.letters() if it["key"] == {"encoding": "text", "data": key.decode()}]
            return len(found) > besides

        await eventually(is_there)
        return found[-1]

    async def query(self, statement: str, *arguments: Any) -> Any:
        connection = await asyncpg.connect(self.database.admin_url)
        try:
            return await connection.fetchval(statement, *arguments)
        finally:
            await connection.close()


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(postgres_server: PostgresServer, kafka: Kafka) -> AsyncIterator[Service]:
    """One for all tests of the module: joining the group takes its time."""
    database = await postgres_server.clone()
    tenant = uuid4().hex
    addresses = {"embeddings_database_url": database.embeddings_url, "storage_url": "s3://none"}
    app = build_app(EmbeddingsSettings(**addresses, tenant=tenant, **kafka.options))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=2))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            async with httpx2.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=PATIENCE) as http:

                async def is_ready() -> bool:
                    return server.started and (await http.get("/health/ready")).is_success

                await eventually(is_ready)
                yield Service(http, kafka, database, tenant, app.state.dead_letters.read)
        finally:
            server.should_exit = True
            await serving
            await postgres_server.drop(database)


@pytest.fixture(autouse=True)
def addresses(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell the command where the service is."""
    for name in ("FILES", "EMBEDDINGS", "SEARCH"):
        monkeypatch.setenv(f"CAUCE_{name}_URL", str(service.http.base_url))


async def cauce(*arguments: object) -> Result:
    """Run the command beside the service, which is on this loop."""
    return await asyncio.to_thread(
        CliRunner().invoke, command, ["dead-letters", *(str(argument) for argument in arguments)]
    )


async def test_a_record_that_is_no_event_is_shown_as_it_came(service: Service) -> None:
    key = uuid4().hex.encode()
    await service.publish(b"\x00\xffjunk", key, HEADERS)
    letter = await service.letter_of(key)
    assert letter["reason"] == "INVALID_ENVELOPE"
    assert letter["origin"]["topic"] == FILES_EVENTS.name
    assert letter["size_bytes"] == 6

    place = f"{letter['partition']}/{letter['offset']}"
    shown = (await service.http.get(f"/dead-letters/{place}")).json()
    assert shown.items() >= letter.items()
    assert shown["value"] == {"encoding": "base64", "data": base64.b64encode(b"\x00\xffjunk").decode()}
    assert shown["headers"] == [
        {"name": "ce_type", "value": {"encoding": "base64", "data": "//4="}},
        {"name": "ce_type", "value": {"encoding": "text", "data": "twice"}},
        {"name": "nothing", "value": None},
    ]

    listed = [json.loads(line) for line in (await cauce("list", "--json")).stdout.splitlines()]
    assert letter in listed
    assert key.decode() in (await cauce("show", letter["partition"], letter["offset"])).stdout


async def test_a_mended_record_is_replayed_to_its_end(service: Service) -> None:
    file_id = await service.query(STORED, service.tenant)
    await service.query(POISON)
    event = new_event(FILE_UPLOADED, file_id, "poison", service.tenant)
    headers = [(name, text.encode()) for name, text in event.headers().items()]
    key = f"{service.tenant}-{file_id}".encode()
    await service.publish(event.value(), key, headers)
    letter = await service.letter_of(key)
    assert letter["reason"] == "UNPROCESSABLE"
    await service.query(MENDED)

    answer = await cauce("replay", letter["partition"], letter["offset"], "--json")

    replay = json.loads(answer.stdout.splitlines()[-1])
    assert (answer.exit_code, replay["outcome"], replay["dead_letter"]) == (0, "HANDLED", None)
    count = "SELECT count(*) FROM module_embeddings_files_file WHERE file_id = $1 AND name = 'poison'"
    assert await service.query(count, file_id) == 1
    sent = await read(service.kafka, replay["sent_to"])
    assert (sent.key, sent.value, list(sent.headers)) == (key, event.value(), headers)
    assert sent.partition == letter["origin"]["partition"]


async def test_a_record_that_is_not_mended_comes_back_and_the_command_says_so(service: Service) -> None:
    key = uuid4().hex.encode()
    await service.publish(None, key, HEADERS)
    letter = await service.letter_of(key)

    answer = await cauce("replay", letter["partition"], letter["offset"], "--json")

    replay = json.loads(answer.stdout.splitlines()[-1])
    assert (answer.exit_code, replay["outcome"]) == (1, "SET_ASIDE")
    assert replay["dead_letter"] == await service.letter_of(key, besides=1)
    again = await read(service.kafka, {"topic": DEAD_LETTERS.name} | replay["dead_letter"])
    assert len([name for name, _ in again.headers if name == "dead_letter_reason"]) == 1
    assert "SET_ASIDE" in (await cauce("replay", letter["partition"], letter["offset"])).stdout


async def test_letters_come_page_by_page_in_order_and_none_of_another_tenant(service: Service) -> None:
    keys = [uuid4().hex.encode() for _ in range(5)]
    for key in keys:
        await service.publish(json.dumps({"tenant": service.tenant}).encode(), key, [])
    shared = uuid4().hex.encode()
    await service.publish(b'{"tenant": "another"}', shared, [])
    await service.publish(b"nobody's", shared, [])
    for key in (*keys, shared):
        await service.letter_of(key)

    letters = await service.letters(limit=2)

    places = [(letter["partition"], letter["offset"]) for letter in letters]
    assert places == sorted(set(places))
    assert letters == await service.letters()
    listed = [letter["key"]["data"] for letter in letters if letter["key"]]
    assert set(listed) >= {key.decode() for key in keys}
    assert listed.count(shared.decode()) == 1


async def test_an_operator_sees_the_letters_of_every_tenant(service: Service) -> None:
    key = uuid4().hex.encode()
    await service.publish(b'{"tenant": "another"}', key, [])
    await service.publish(b"nobody's", key, [])
    await service.letter_of(key)

    read = replace(service.read, to_operators=True)
    page = await read.page(AccessScope(service.tenant), 500, None)

    letters = [letter for letter in page.letters if letter.key == key]
    assert len(letters) == 2
    assert await read.get(AccessScope(service.tenant), letters[0].place) == letters[0]


async def test_what_cannot_be_shown_or_replayed_is_refused(service: Service) -> None:
    async with new_producer(service.kafka.settings) as producer:
        stray = await producer.send_and_wait(DEAD_LETTERS.name, b"stray", headers=[("dead_letter_topic", b"x")])
        # As random as it is, it cannot be made smaller on its way.
        huge = randbytes(2**20 - 200)
        key = uuid4().hex.encode()
        await producer.send_and_wait(FILES_EVENTS.name, huge, key=key, headers=[])
    too_large = await service.letter_of(key)
    replay = f"/dead-letters/{too_large['partition']}/{too_large['offset']}/replay"
    place = f"{stray.partition}/{stray.offset}"
    missing = f"/dead-letters/0/{10**9}"
    answers = [
        (await service.http.post(f"/dead-letters/{place}/replay"), 409, "NOT_REPLAYABLE"),
        (await service.http.post(replay), 409, "NOT_REPLAYABLE"),
        (await service.http.get(missing), 404, "DEAD_LETTER_NOT_FOUND"),
        (await service.http.get(f"/dead-letters/{DEAD_LETTERS.partitions}/0"), 404, "DEAD_LETTER_NOT_FOUND"),
        (await service.http.get("/dead-letters?after=1-2"), 422, "INVALID_REQUEST"),
        (await service.http.get("/dead-letters?limit=501"), 422, "INVALID_REQUEST"),
    ]
    assert [(it.status_code, it.json()["code"]) for it, *_ in answers] == [tuple(wanted) for _, *wanted in answers]
    assert (await cauce("show", 0, 10**9)).exit_code == 1


async def test_a_broker_that_is_away_is_said(kafka: Kafka) -> None:
    away = kafka.settings.model_copy(update={"kafka_bootstrap": "127.0.0.1:9"})
    reader = KafkaDeadLetters(away, topic=DEAD_LETTERS, origins=[FILES_EVENTS], group_id="none")
    with pytest.raises(UnavailableError, match="BROKER_UNAVAILABLE"):
        await reader.read(1, None)


async def read(kafka: Kafka, place: dict[str, Any]) -> Any:
    partition = TopicPartition(place["topic"], place["partition"])
    await ensure_topics(kafka.settings)
    async with AIOKafkaConsumer(**client_options(kafka.settings)) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, place["offset"])
        async with asyncio.timeout(PATIENCE):
            return await consumer.getone()


async def test_records_that_cannot_be_decoded_hide_no_other_and_are_not_replayed(service: Service) -> None:
    places = {(it["partition"], it["offset"]) for it in await service.letters()}
    await publish_in_one(service.kafka.settings, FILES_EVENTS.name, 3, [None])
    await publish_in_one(service.kafka.settings, DEAD_LETTERS.name, 3, [None])
    found: list[dict[str, Any]] = []

    async def are_there() -> bool:
        found[:] = [it for it in await service.letters() if (it["partition"], it["offset"]) not in places]
        return len(found) == 2

    await eventually(are_there)
    assert {it["reason"] for it in found} == {"UNDECODABLE", None}
    for letter in found:
        answer = await cauce("replay", letter["partition"], letter["offset"])
        assert answer.exit_code != 0
        assert "NOT_REPLAYABLE" in answer.output
