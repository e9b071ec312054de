"""What ``contracts/`` publishes is what the code does, and enough to be used without it."""

from __future__ import annotations

import asyncio
import importlib
import json
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from faststream.specification.asyncapi.v3_0_0.schema import ApplicationSchema
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from contracts.events.documents import headers_schema, payload_schema, published_events
from contracts.events.envelope import EventType, MalformedEventError, read_event
from contracts.events.topics import ALL_TOPICS, CATALOG_EVENTS, FILES_EVENTS, Topic
from deploy import generate
from services.chassis.messaging.intake import Intake
from services.chassis.postgres.pool import create_pool
from services.chassis.resource_types import load_resource_types
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.embeddings.adapters.postgres.resource_mirror import PostgresResourceMirror
from services.embeddings.entrypoints.consume_events import MarkOnEvents
from tests.support.broker import Kafka
from tests.support.files import PATIENCE
from tests.support.postgres import Database

EXAMPLES = generate.CONTRACTS / "events" / "examples"
SCHEMAS = generate.CONTRACTS / "events" / "schemas"

Example = dict[str, Any]


def examples(folder: Path = EXAMPLES) -> dict[str, Example]:
    """Examples by name, as any producer would read them."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def raw_headers(example: Example) -> list[tuple[str, bytes]]:
    return [(name, text.encode()) for name, text in example["headers"].items()]


def raw_value(example: Example) -> bytes:
    return example["text"].encode() if "text" in example else json.dumps(example["value"]).encode()


@pytest.fixture(scope="module")
def validators() -> dict[str, Draft202012Validator]:
    schemas = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in SCHEMAS.glob("*.json")}
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    return {name: Draft202012Validator(schema, format_checker=FormatChecker()) for name, schema in schemas.items()}


def test_what_is_published_is_what_the_code_says() -> None:
    assert generate.stale() == [], f"contracts/ is out of date; run `{generate.COMMAND}` and commit what it writes"


def test_a_contract_that_drifts_is_noticed_and_mended(tmp_path: Path) -> None:
    folder = tmp_path / "contracts"
    shutil.copytree(generate.CONTRACTS, folder)
    (folder / "events/schemas/payload.json").unlink()
    undeclared = "events/examples/cauce.catalog.ValveChanged.v1.json"
    (folder / undeclared).write_text("{}")
    specification = folder / "openapi/files.json"
    specification.write_text(specification.read_text(encoding="utf-8").replace("/resources/", "/things/", 1))
    drifted = [
        "events/examples/cauce.catalog.ValveChanged.v1.json",
        "events/schemas/payload.json",
        "openapi/files.json",
    ]

    assert generate.write(folder) == drifted
    assert generate.stale(folder) == []
    assert (folder / "events/examples/broken").is_dir()


def test_every_event_type_of_the_code_is_published() -> None:
    """Constants, and functions from the name of a resource type, of each context's module."""
    defined = set()
    for context in ("files", "catalog", "embeddings"):
        for value in vars(importlib.import_module(f"contracts.events.{context}")).values():
            if isinstance(value, EventType):
                defined.add(value)
            elif getattr(value, "__annotations__", {}) == {"resource_type": "str", "return": "EventType"}:
                defined |= {value(name) for name in load_resource_types()}

    published = [event.type for event in published_events(load_resource_types())]
    assert len(published) == len(set(published))
    assert set(published) == defined
    assert {str(type_) for type_ in defined} == examples().keys()


@pytest.mark.parametrize("name", examples())
def test_an_example_is_valid_and_read(name: str, validators: Mapping[str, Draft202012Validator]) -> None:
    example = examples()[name]

    event = read_event(raw_headers(example), raw_value(example))

    validators["headers"].validate(example["headers"])
    validators["payload"].validate(example["value"])
    assert str(event.type) == name
    assert event.event_id.version == 7
    assert (event.key, event.headers(), event.payload) == (example["key"], example["headers"], example["value"])
    assert example["topic"] in {topic.name for topic in ALL_TOPICS}


@pytest.mark.parametrize("name", examples(EXAMPLES / "broken"))
def test_a_broken_example_is_refused_with_its_reason(name: str, validators: Mapping[str, Draft202012Validator]) -> None:
    example = examples(EXAMPLES / "broken")[name]

    with pytest.raises(MalformedEventError) as caught:
        read_event(raw_headers(example), raw_value(example))

    assert caught.value.reason == example["reason"]
    if "value" in example:  # what is not even JSON, a schema cannot tell
        headers_valid = validators["headers"].is_valid(example["headers"])
        assert not (headers_valid and validators["payload"].is_valid(example["value"]))


HEADERS = raw_headers(examples()["cauce.files.FileUploaded.v1"])
PAYLOAD = Draft202012Validator(payload_schema())
scalars = st.none() | st.booleans() | st.text(max_size=5) | st.floats(allow_nan=False).filter(lambda x: x % 1)
ids = st.sampled_from([-1, 0, 1, 2**63 - 1, 2**63, 10**30]) | st.integers() | scalars
names = (
    st.sampled_from(["", " ", "\t\n", "a\0", "x" * 1_000, "x" * 1_001, "\0"]) | st.text() | scalars | st.lists(scalars)
)


@given(st.fixed_dictionaries({}, optional={"id": ids, "name": names, "tenant": names, "unit": scalars}) | names)
def test_the_schema_and_the_code_agree_on_every_payload(payload: Any) -> None:
    """A number like 1.0 is left out: JSON Schema takes it for an integer, the code does not."""
    value = json.dumps(payload).encode()
    try:
        read_event(HEADERS, value)
        accepted = True
    except MalformedEventError:
        accepted = False
    assert PAYLOAD.is_valid(json.loads(value)) == accepted


def test_the_asyncapi_document_is_one_and_closed_in_itself() -> None:
    document = json.loads((generate.CONTRACTS / "asyncapi" / "cauce.json").read_text(encoding="utf-8"))

    ApplicationSchema.model_validate(document)
    for reference in _references(document):
        assert reference.startswith("#/")
        target = document
        for part in reference[2:].split("/"):
            target = target[part]
    assert {topic.name: topic.partitions for topic in ALL_TOPICS} == {
        channel["address"]: channel["bindings"]["kafka"]["partitions"] for channel in document["channels"].values()
    }
    for name, example in examples().items():
        message = document["components"]["messages"][name]
        assert name in document["channels"][example["topic"]]["messages"]
        assert message["examples"] == [{"headers": example["headers"], "payload": example["value"]}]
        headers = Draft202012Validator({**message["headers"], "components": document["components"]})
        assert headers.is_valid(example["headers"])
        assert not headers.is_valid({**example["headers"], "ce_type": "cauce.files.Other.v1"})


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from [node["$ref"]] if "$ref" in node else []
        for child in node.values():
            yield from _references(child)
    elif isinstance(node, list):
        for child in node:
            yield from _references(child)


def test_the_openapi_of_the_catalogue_describes_every_type() -> None:
    document = json.loads((generate.CONTRACTS / "openapi" / "files.json").read_text(encoding="utf-8"))
    put = document["paths"]["/resources/{type}/{id}"]["put"]
    schemas = {one["title"]: one for one in put["requestBody"]["content"]["application/json"]["schema"]["oneOf"]}
    for name, type_ in load_resource_types().items():
        Draft202012Validator.check_schema(schemas[name])
        assert list(schemas[name]["properties"]) == ["name", *(field.name for field in type_.fields)]


@dataclass(frozen=True)
class Consumer:
    """The embeddings service's intake on topics of the test's own, over a database in which every source exists."""

    kafka: Kafka
    topics: Mapping[str, Topic]
    dead_letters: Topic
    connection: asyncpg.Connection

    async def produce(self, *sent: Example) -> None:
        """Emit events as a producer elsewhere does: aiokafka, and nothing of this project but the example."""
        producer = AIOKafkaProducer(bootstrap_servers=self.kafka.bootstrap, acks="all", enable_idempotence=False)
        await producer.start()
        try:
            for example in sent:
                await producer.send_and_wait(
                    self.topics[example["topic"]].name,
                    key=example["key"].encode(),
                    value=raw_value(example),
                    headers=raw_headers(example),
                )
        finally:
            await producer.stop()

    async def marked(self) -> set[str]:
        """What the mirrors hold: a type for a resource, ``file`` for a file."""
        resources = await self.connection.fetch("SELECT entity_type FROM module_embeddings_resource")
        files = await self.connection.fetch("SELECT FROM module_embeddings_files_file")
        return {row["entity_type"] for row in resources} | ({"file"} if files else set())

    async def until_marked(self, expected: set[str]) -> None:
        async with asyncio.timeout(PATIENCE):
            while await self.marked() != expected:
                await asyncio.sleep(0.05)


@pytest.fixture
async def consumer(database: Database, kafka: Kafka) -> AsyncIterator[Consumer]:
    types = load_resource_types()
    topics = {one.name: Topic(f"test.{uuid4().hex}", partitions=2) for one in (FILES_EVENTS, CATALOG_EVENTS)}
    dead_letters = Topic(f"test.{uuid4().hex}", partitions=1)
    connection = await asyncpg.connect(database.admin_url)
    await connection.execute(
        "INSERT INTO module_files_file"
        " (id, tenant_id, name, media_type, state, revision, size_bytes, sha256, storage_key)"
        " OVERRIDING SYSTEM VALUE VALUES (1001, 'acme', 'a', 'text/plain', 'STORED', 1, 1, '', 'k')"
    )
    for type_ in types.values():
        await connection.execute(f"INSERT INTO {type_.source_table} (id, tenant_id, name) VALUES (1001, 'acme', 'a')")
    async with await create_pool(database.embeddings_url, application_name="test") as pool:
        mirror = PostgresResourceMirror(pool, types)
        received = [event for event in published_events(types) if event.topic.name in topics]
        intake = Intake(
            kafka.settings,
            group_id=uuid4().hex,
            topics=list(topics.values()),
            known_types=lambda: {str(event.type) for event in received},
            handle=MarkOnEvents(PostgresFileMirror(pool), mirror),
            dead_letters=dead_letters,
        )
        async with _running(intake):
            yield Consumer(kafka, topics, dead_letters, connection)
    await connection.close()


@asynccontextmanager
async def _running(intake: Intake) -> AsyncIterator[None]:
    task = asyncio.create_task(intake.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_producer_elsewhere_needs_the_examples_only(consumer: Consumer) -> None:
    sent = [example for example in examples().values() if example["topic"] in consumer.topics]
    changed = [example for example in sent if "Deleted" not in example["headers"]["ce_type"]]
    everything = {"file", *load_resource_types()}
    assert len(changed) == len(everything)

    await consumer.produce(*changed)
    await consumer.until_marked(everything)

    for type_ in load_resource_types().values():
        await consumer.connection.execute(f"DELETE FROM {type_.source_table}")
    await consumer.connection.execute("DELETE FROM module_files_file")
    await consumer.produce(*(example for example in sent if example not in changed))
    await consumer.until_marked(set())


async def test_bad_events_go_to_the_dead_letters_with_their_reason_and_the_good_go_on(consumer: Consumer) -> None:
    good = examples()["cauce.files.FileUploaded.v1"]
    future = {**good, "headers": {**good["headers"], "ce_type": "cauce.files.FileUploaded.v2"}}
    undeclared = {**good, "headers": {**good["headers"], "ce_type": "cauce.catalog.ValveChanged.v1"}}
    bad = {
        **examples(EXAMPLES / "broken"),
        "future": {**future, "reason": "UNKNOWN_TYPE"},
        "undeclared": {**undeclared, "reason": "UNKNOWN_TYPE"},
    }

    await consumer.produce(*bad.values(), good)
    await consumer.until_marked({"file"})

    reader = AIOKafkaConsumer(
        consumer.dead_letters.name, bootstrap_servers=consumer.kafka.bootstrap, auto_offset_reset="earliest"
    )
    await reader.start()
    try:
        async with asyncio.timeout(PATIENCE):
            letters = [await reader.getone() for _ in bad]
    finally:
        await reader.stop()
    assert sorted((dict(letter.headers)["dead_letter_reason"].decode(), letter.value) for letter in letters) == sorted(
        (example["reason"], raw_value(example)) for example in bad.values()
    )


def test_headers_that_the_schema_allows_are_read(validators: Mapping[str, Draft202012Validator]) -> None:
    good = examples()["cauce.files.FileUploaded.v1"]["headers"]
    least = {name: text for name, text in good.items() if name in headers_schema()["required"]}
    value = json.dumps({"id": 1, "name": "", "tenant": "a"}).encode()
    for time in ("2026-01-31T09:30:15Z", "2026-01-31T09:30:15.123456-03:30"):
        headers = {**least, "ce_time": time}
        assert validators["headers"].is_valid(headers)
        assert read_event([(name, text.encode()) for name, text in headers.items()], value).aggregate_id == 1
