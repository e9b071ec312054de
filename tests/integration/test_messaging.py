"""Outbox, relay and intake over a real database and a real broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from asyncpg.exceptions._base import DataError as AsyncpgArgumentError
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from contracts.events.envelope import Event, EventType, read_event
from contracts.events.files import FILE_DELETED, FILE_UPLOADED
from contracts.events.topics import Topic
from services.chassis.messaging import intake as intake_module
from services.chassis.messaging import relay as relay_module
from services.chassis.messaging.fetch import fetch
from services.chassis.messaging.intake import Intake
from services.chassis.messaging.kafka import client_options, ensure_topics, new_producer
from services.chassis.messaging.outbox import append_events, new_event
from services.chassis.messaging.relay import OutboxRelay
from services.chassis.postgres.pool import prepare_connection
from services.chassis.settings import KafkaSettings
from tests.support.apache_kafka.server import PASSWORD, USER, ApacheKafka
from tests.support.broker import Kafka
from tests.support.postgres import Database
from tests.support.undecodable import publish_in_one

PATIENCE = 60.0
OUTBOX = "module_files_outbox"
KNOWN = {str(FILE_UPLOADED), str(FILE_DELETED)}


@pytest.fixture
def settings(kafka: Kafka) -> KafkaSettings:
    return kafka.settings


@pytest.fixture
async def topic(settings: KafkaSettings) -> Topic:
    topic = Topic(f"test.{uuid4().hex}", partitions=2)
    await ensure_topics(settings, [topic])
    return topic


@pytest.fixture
async def dead(settings: KafkaSettings, topic: Topic) -> Topic:
    """Where its dead letters go. It is there before anybody reads them: a broker makes one of more partitions else."""
    dead = Topic(f"{topic.name}.dead", partitions=1)
    await ensure_topics(settings, [dead])
    return dead


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.files_url)
    await prepare_connection(connection)
    yield connection
    await connection.close()


@asynccontextmanager
async def running(*services: OutboxRelay | Intake) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(service.run()) for service in services]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.05)


async def outbox_is_empty(connection: asyncpg.Connection) -> None:
    async with asyncio.timeout(PATIENCE):
        while await connection.fetchval(f"SELECT count(*) FROM {OUTBOX}"):
            await asyncio.sleep(0.05)


async def read(settings: KafkaSettings, topic: Topic, count: int) -> list[ConsumerRecord]:
    consumer = AIOKafkaConsumer(topic.name, auto_offset_reset="earliest", **client_options(settings))
    await consumer.start()
    try:
        async with asyncio.timeout(PATIENCE):
            return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


def intake_of(
    settings: KafkaSettings, topic: Topic, handle: Callable[[Sequence[Event]], Awaitable[None]], dead: Topic
) -> Intake:
    return Intake(
        settings, group_id=topic.name, topics=[topic], known_types=lambda: KNOWN, handle=handle, dead_letters=dead
    )


def event(aggregate_id: int, type_: EventType = FILE_UPLOADED) -> Event:
    return new_event(type_, aggregate_id, f"informe {aggregate_id}.pdf", "default")


async def test_a_committed_event_is_published_once_and_leaves_the_outbox(
    database: Database, connection: asyncpg.Connection, settings: KafkaSettings, topic: Topic
) -> None:
    sent = [event(1), event(2), event(1, FILE_DELETED)]
    async with connection.transaction():
        await append_events(connection, OUTBOX, topic, sent)

    async with running(OutboxRelay(database.files_url, OUTBOX, settings)):
        await outbox_is_empty(connection)

    records = await read(settings, topic, 3)
    received = [read_event(record.headers, record.value) for record in records]
    assert {one.event_id for one in received} == {one.event_id for one in sent}
    assert [one.type for one in received if one.aggregate_id == 1] == [FILE_UPLOADED, FILE_DELETED]
    assert {record.key for record in records} == {b"1", b"2"}


async def test_an_event_of_a_transaction_that_rolls_back_is_never_published(
    database: Database, connection: asyncpg.Connection, settings: KafkaSettings, topic: Topic
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with connection.transaction():
            await append_events(connection, OUTBOX, topic, [event(1)])
            raise ZeroDivisionError
    async with connection.transaction():
        await append_events(connection, OUTBOX, topic, [event(2)])

    async with running(OutboxRelay(database.files_url, OUTBOX, settings)):
        await outbox_is_empty(connection)

    (record,) = await read(settings, topic, 1)
    assert record.key == b"2"


async def test_a_transaction_that_commits_late_is_not_passed_over(
    database: Database, connection: asyncpg.Connection, settings: KafkaSettings, topic: Topic
) -> None:
    late = await asyncpg.connect(database.files_url)
    await prepare_connection(late)
    transaction = late.transaction()
    await transaction.start()
    await append_events(late, OUTBOX, topic, [event(1)])
    await append_events(connection, OUTBOX, topic, [event(2)])

    async with running(OutboxRelay(database.files_url, OUTBOX, settings)):
        await outbox_is_empty(connection)
        await transaction.commit()
        await late.close()
        await outbox_is_empty(connection)

    assert {record.key for record in await read(settings, topic, 2)} == {b"1", b"2"}


async def test_a_second_relay_stands_by_and_takes_over(
    database: Database, connection: asyncpg.Connection, settings: KafkaSettings, topic: Topic
) -> None:
    first = OutboxRelay(database.files_url, OUTBOX, settings)
    second = OutboxRelay(database.files_url, OUTBOX, settings)
    async with running(first):
        await eventually(lambda: first.fault() is None)
        async with running(second):
            await eventually(lambda: second.fault() is None)
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid IN "
                "(SELECT pid FROM pg_stat_activity WHERE usename = current_user)"
            )
            await append_events(connection, OUTBOX, topic, [event(1)])
            await outbox_is_empty(connection)


async def test_the_relay_says_that_the_broker_is_away(database: Database) -> None:
    relay = OutboxRelay(database.files_url, OUTBOX, KafkaSettings(kafka_bootstrap="127.0.0.1:9"))
    async with running(relay):
        await eventually(lambda: relay.fault() not in (None, "not started"))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[tuple[str, str | None], float]]:
    """What the gauges of the intake and the relay show, by name and by topic or table."""
    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("cauce")
    modules = {"intake": (intake_module, ("lag", "age", "kept")), "relay": (relay_module, ("depth", "age"))}
    for of, (module, names) in modules.items():
        for name in names:
            monkeypatch.setattr(module, f"_{name}_gauge", meter.create_gauge(f"{of}.{name}"))

    def read() -> dict[tuple[str, str | None], float]:
        shown: dict[tuple[str, str | None], float] = {}
        data = reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for metric in resource.scope_metrics[0].metrics:
                for point in metric.data.data_points:
                    shown[metric.name, next(iter((point.attributes or {}).values()), None)] = point.value
        return shown

    return read


async def test_what_cannot_be_published_or_handled_now_is_shown_as_depth_and_age(
    database: Database,
    connection: asyncpg.Connection,
    settings: KafkaSettings,
    topic: Topic,
    dead: Topic,
    *,
    measured: Callable[[], dict[tuple[str, str | None], float]],
) -> None:
    await append_events(connection, OUTBOX, topic, [event(1), event(2)])
    async with running(OutboxRelay(database.files_url, OUTBOX, KafkaSettings(kafka_bootstrap="127.0.0.1:9"))):
        await eventually(lambda: measured().get(("relay.depth", OUTBOX)) == 2)
        assert measured()["relay.age", OUTBOX] > 0

    held, received = asyncio.Event(), Received()

    async def hold(events: Sequence[Event]) -> None:
        await held.wait()
        await received(events)

    await publish(settings, topic, (b"junk", []), *(event(number) for number in range(1, 10)))
    intake = intake_of(settings, topic, hold, dead)
    async with running(intake):
        await eventually(lambda: measured().get(("intake.lag", topic.name)) == 10)
        await eventually(lambda: measured()["intake.age", topic.name] > 0)
        held.set()
        await eventually(lambda: measured()["intake.lag", topic.name] == 0)
        assert measured()["intake.age", topic.name] == 0
        await eventually(lambda: measured().get(("intake.kept", None)) == 1)


class Received:
    """A handler that keeps what it is given, and fails as told."""

    def __init__(self, *faults: Exception) -> None:
        self.events: list[Event] = []
        self.faults = list(faults)
        self.poison: dict[int, Exception] = {}

    async def __call__(self, events: Sequence[Event]) -> None:
        if self.faults:
            raise self.faults.pop(0)
        for one in events:
            if one.aggregate_id in self.poison:
                raise self.poison[one.aggregate_id]
        self.events += events

    def ids(self) -> list[int]:
        return [one.aggregate_id for one in self.events]


async def publish(settings: KafkaSettings, topic: Topic, *records: Event | tuple[bytes | None, list]) -> None:
    async with new_producer(settings) as producer:
        for record in records:
            if isinstance(record, Event):
                value, headers = record.value(), [(name, text.encode()) for name, text in record.headers().items()]
            else:
                value, headers = record
            await producer.send_and_wait(topic.name, value, key=b"1", headers=headers)


async def test_bad_records_become_dead_letters_and_the_rest_of_their_batch_goes_on(
    settings: KafkaSettings, topic: Topic, dead: Topic
) -> None:
    good_headers = [(name, text.encode()) for name, text in event(1).headers().items()]
    future = event(9, EventType("files", "FileUploaded", 2))
    received = Received(OSError("the database is away"), asyncpg.UndefinedTableError("it is not migrated"))
    received.poison = {
        4: asyncpg.DataError("the database refuses it"),
        5: AsyncpgArgumentError("the driver refuses it"),
        6: KeyError("our own fault"),
    }
    await publish(
        settings,
        topic,
        event(1),
        (b"junk", [("ce_type", b"\xff\xfe")]),
        (b"{}", good_headers),
        (None, []),
        future,
        event(4),
        event(5),
        event(6),
        event(2, FILE_DELETED),
    )
    intake = intake_of(settings, topic, received, dead)

    async with running(intake):
        await eventually(lambda: received.ids() == [1, 2])
        letters = await read(settings, dead, 7)

    reasons = sorted(dict(letter.headers)["dead_letter_reason"].decode() for letter in letters)
    assert reasons == [*["INVALID_ENVELOPE"] * 2, "INVALID_PAYLOAD", "UNKNOWN_TYPE", *["UNPROCESSABLE"] * 3]
    junk = next(letter for letter in letters if letter.value == b"junk")
    origin = dict(junk.headers)
    assert origin["ce_type"] == b"\xff\xfe"
    assert (origin["dead_letter_topic"].decode(), origin["dead_letter_offset"]) == (topic.name, b"1")


async def test_a_bad_record_as_large_as_the_broker_takes_stops_nothing(
    settings: KafkaSettings, topic: Topic, dead: Topic
) -> None:
    received = Received()
    await publish(settings, topic, (random.Random(1).randbytes(2**20 - 200), []), event(1))
    intake = intake_of(settings, topic, received, dead)

    async with running(intake):
        await eventually(lambda: received.ids() == [1])
        (letter,) = await read(settings, dead, 1)

    said = {name: value.decode() for name, value in letter.headers}
    assert (said["dead_letter_topic"], said["dead_letter_offset"]) == (topic.name, "0")
    size = len(letter.key or b"") + 2**20 - 200
    assert f"its {size} bytes" in said["dead_letter_detail"]
    assert said["dead_letter_left"] == str(size)


async def test_a_record_whose_key_is_too_large_to_be_kept_is_set_aside_too(
    settings: KafkaSettings, topic: Topic, dead: Topic
) -> None:
    received = Received()
    await ensure_topics(settings, [topic])
    async with new_producer(settings) as producer:
        await producer.send_and_wait(topic.name, b"", key=random.Random(1).randbytes(2**20 - 200))
    await publish(settings, topic, event(1))
    intake = intake_of(settings, topic, received, dead)

    async with running(intake):
        await eventually(lambda: received.ids() == [1])
        (letter,) = await read(settings, dead, 1)

    assert (letter.key, letter.value) == (None, b"")
    assert dict(letter.headers)["dead_letter_left"] == str(2**20 - 200).encode()


async def test_a_record_with_neither_key_nor_value_is_set_aside_as_any_other(
    settings: KafkaSettings, topic: Topic, dead: Topic
) -> None:
    received = Received()
    await ensure_topics(settings, [topic])
    async with new_producer(settings) as producer:
        # What the client refuses to send, others do.
        nothing = producer._message_accumulator.add_message(
            TopicPartition(topic.name, 0), None, None, 10, timestamp_ms=None, headers=[]
        )
        await (await nothing)
    await publish(settings, topic, event(1))
    intake = intake_of(settings, topic, received, dead)

    async with running(intake):
        await eventually(lambda: received.ids() == [1])
        (letter,) = await read(settings, dead, 1)

    assert dict(letter.headers)["dead_letter_reason"] == b"INVALID_ENVELOPE"


async def test_records_that_cannot_be_decoded_are_set_aside_and_all_others_are_handled_once(
    settings: KafkaSettings, topic: Topic, dead: Topic
) -> None:
    received = Received()
    await publish_in_one(settings, topic.name, 0, [event(1), None, event(2), None, None, event(3)])
    await publish_in_one(settings, topic.name, 1, [event(number) for number in range(11, 21)])
    intake = intake_of(settings, topic, received, dead)

    async with running(intake):
        letters = await read(settings, dead, 3)
        await eventually(lambda: len(received.events) == 13)
        await publish_in_one(settings, topic.name, 1, [None, event(21)], compression="zstd")
        await publish_in_one(settings, topic.name, 0, [event(4)])
        letters += await read(settings, dead, 4)
        await eventually(lambda: len(received.events) == 15)
        assert intake.fault() is None

    assert sorted(received.ids()) == [1, 2, 3, 4, *range(11, 22)]
    assert [number for number in received.ids() if number < 10] == [1, 2, 3, 4]
    said = [{name: value.decode() for name, value in letter.headers} for letter in letters[3:]]
    places = [(one["dead_letter_partition"], one["dead_letter_offset"]) for one in said]
    assert places == [("0", "1"), ("0", "3"), ("0", "4"), ("1", "10")]
    for one, letter in zip(said, letters[3:], strict=True):
        assert (one["dead_letter_reason"], one["dead_letter_left"]) == ("UNDECODABLE", "unknown")
        assert "UnicodeDecodeError" in one["dead_letter_detail"]
        assert (letter.key, letter.value) == (None, b"")


async def test_an_intake_that_gets_no_further_says_so(
    settings: KafkaSettings, topic: Topic, dead: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_module, "STALLED_SECONDS", 1.0)
    held, received = asyncio.Event(), Received()

    async def hold(events: Sequence[Event]) -> None:
        await held.wait()
        await received(events)

    intake = intake_of(settings, topic, hold, dead)
    async with running(intake):
        await eventually(lambda: intake.fault() is None)
        await publish(settings, topic, event(1))
        await eventually(lambda: "stands at 0, 1 records behind" in str(intake.fault()))
        held.set()
        await eventually(lambda: intake.fault() is None)
        assert received.ids() == [1]


async def test_what_was_taken_is_given_again_to_the_next_member_unless_it_was_handled(
    settings: KafkaSettings, topic: Topic, dead: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    received, faults = Received(), [KafkaError("no more")]

    async def end_with_the_second(
        kafka: KafkaSettings, consumer: AIOKafkaConsumer, limit: int
    ) -> Sequence[ConsumerRecord]:
        records = await fetch(kafka, consumer, limit)
        if records and received.events and faults:
            raise faults.pop()
        return records

    monkeypatch.setattr(intake_module, "fetch", end_with_the_second)
    intake = intake_of(settings, topic, received, dead)
    await publish(settings, topic, event(1))
    async with running(intake):
        await eventually(lambda: received.ids() == [1])
        await publish(settings, topic, event(2))
        await eventually(lambda: "no more" in str(intake.fault()))
        await eventually(lambda: received.ids() == [1, 2])
        await eventually(lambda: intake.fault() is None)


@pytest.fixture
def secured(kafka: Kafka) -> KafkaSettings:
    """How the same broker is reached with TLS and a password."""
    server = kafka.server
    assert isinstance(server, ApacheKafka)
    return KafkaSettings(
        kafka_bootstrap=server.secured,
        kafka_security_protocol="SASL_SSL",
        kafka_ssl_cafile=str(server.cafile),
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_sasl_username=USER,
        kafka_sasl_password=PASSWORD,
    )


@pytest.mark.apache
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_events_go_out_and_come_in_over_tls_with_a_password(
    database: Database,
    connection: asyncpg.Connection,
    secured: KafkaSettings,
    topic: Topic,
    dead: Topic,
    *,
    mechanism: str,
) -> None:
    settings = secured.model_copy(update={"kafka_sasl_mechanism": mechanism})
    received = Received()
    received.poison = {2: KeyError("our own fault")}
    intake = intake_of(settings, topic, received, dead)
    relay = OutboxRelay(database.files_url, OUTBOX, settings)
    await append_events(connection, OUTBOX, topic, [event(1), event(2), event(3)])

    async with running(relay, intake):
        await eventually(lambda: sorted(received.ids()) == [1, 3])
        await outbox_is_empty(connection)
        assert (relay.fault(), intake.fault()) == (None, None)
        assert [letter.key for letter in await read(settings, dead, 1)] == [b"2"]


@pytest.mark.apache
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kafka_sasl_password": "another"}, ("BROKER_REFUSED", "CAUCE_KAFKA_SASL_PASSWORD")),
        ({"kafka_sasl_password": "another", "kafka_sasl_mechanism": "PLAIN"}, ("BROKER_REFUSED", "Authentication")),
        ({"kafka_ssl_cafile": None}, ("BROKER_NOT_TRUSTED", "CAUCE_KAFKA_SSL_CAFILE")),
        ({"kafka_security_protocol": "PLAINTEXT"}, ("BROKER_UNAVAILABLE", "CAUCE_KAFKA_SECURITY_PROTOCOL")),
    ],
    ids=["password", "plain-password", "certificate", "no-tls"],
)
async def test_what_is_wrong_with_the_way_to_a_secured_broker_is_said_with_what_to_do(
    database: Database, secured: KafkaSettings, topic: Topic, change: dict[str, str | None], said: tuple[str, str]
) -> None:
    settings = secured.model_copy(update=change)
    relay = OutboxRelay(database.files_url, OUTBOX, settings)
    intake = Intake(settings, group_id=topic.name, topics=[topic], known_types=lambda: KNOWN, handle=Received())

    async with running(relay, intake):
        for service in (relay, intake):
            await eventually(lambda service=service: all(words in str(service.fault()) for words in said))
    assert "another" not in f"{relay.fault()} {intake.fault()}"
