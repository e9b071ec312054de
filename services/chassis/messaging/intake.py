"""Consumes topics fast: a batch is one call of a handler that writes the database, then one commit of offsets.

Records are taken raw and parsed here, so that one bad record goes to the dead-letter topic and the rest of its batch
goes on. Offsets are committed only after the handler's transaction; while the database is away the batch waits.
So every event is handled at least once, and the handler must not mind a repetition.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, repeat
from math import inf
from typing import TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage
from faststream.kafka.message import KafkaAckableMessage
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256, SASLScram512
from opentelemetry import metrics, propagate, trace

from contracts.events import dead_letters
from contracts.events.envelope import Event, MalformedEventError, read_event
from contracts.events.topics import DEAD_LETTERS, Topic
from services.chassis.messaging.kafka import client_options, ensure_topics, new_producer
from services.chassis.observability.logs import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY, NOT_MIGRATED, schema_missing
from services.chassis.settings import KafkaSettings
from services.chassis.stopping import pause

BATCH = 500
FINISH_SECONDS = 0.8
"""For the batch in hand at the end; one that is cut off is handled again."""
MEASURE_SECONDS = 5.0
KEPT_KEY_BYTES = 1024
"""The longest key that is kept of a record that is too large to be kept whole."""
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
Record: TypeAlias = ConsumerRecord
Handler = Callable[[Sequence[Event]], Awaitable[None]]

_log = get_logger(__name__)
_tracer = trace.get_tracer("cauce")
_meter = metrics.get_meter("cauce")
_lag_gauge = _meter.create_gauge("cauce.intake.lag", unit="{event}", description="Records not yet handled")
_age_gauge = _meter.create_gauge("cauce.intake.oldest.age", unit="s", description="Age of the oldest record in hand")
_kept_gauge = _meter.create_gauge("cauce.dead_letters.kept", unit="{event}", description="Records on that topic")
_consumed = _meter.create_counter("cauce.intake.consumed", unit="{event}", description="Events handled")
_dead = _meter.create_counter("cauce.intake.dead_letters", unit="{event}", description="Records set aside")


class Intake:
    """One member of a consumer group over some topics.

    Args:
        kafka: the broker.
        group_id: the consumer group.
        topics: what is consumed.
        known_types: the event types that the handler takes, as ``str(EventType)``; others become dead letters.
        handle: writes the events of a batch to the database in one transaction.
        dead_letters: where a record goes that cannot be read or handled.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        *,
        group_id: str,
        topics: Sequence[Topic],
        known_types: Callable[[], Collection[str]],
        handle: Handler,
        dead_letters: Topic = DEAD_LETTERS,
    ) -> None:
        self._kafka = kafka
        self._topics = topics
        self._known_types = known_types
        self._handle = handle
        self._dead_letters = dead_letters
        self._producer: AIOKafkaProducer  # made by each session
        self._fault: str | None = "not started"
        self._obstacle: str | None = None
        self._in_hand: dict[TopicPartition, Record] = {}
        self._broker = KafkaBroker(
            kafka.kafka_bootstrap,
            security=_security(kafka),
            allow_auto_create_topics=False,
            graceful_timeout=FINISH_SECONDS,
            logger=None,
        )
        self._subscriber = self._broker.subscriber(
            *(topic.name for topic in topics),
            group_id=group_id,
            batch=True,
            max_records=BATCH,
            batch_timeout_ms=100,
            auto_offset_reset="earliest",
            ack_policy=AckPolicy.MANUAL,
            parser=self._wrap_raw,
            decoder=_no_body,
        )
        self._subscriber(self._on_batch)

    async def run(self) -> None:
        """Consume until cancelled. A broker that is away is waited for."""
        for delay in _delays():
            try:
                await self._session()
            except Exception as error:  # noqa: BLE001 - whatever it was, events must not wait for a restart
                self._fault = f"{type(error).__name__}: {error}"
                _log.warning("intake_interrupted", error=self._fault)
                await pause(delay)

    async def _session(self) -> None:
        await ensure_topics(self._kafka, [*self._topics, self._dead_letters])
        self._producer = new_producer(self._kafka)
        try:
            await self._producer.start()
            await self._broker.start()
            while True:
                consumer = self._subscriber.consumer
                assigned = consumer.assignment() if consumer is not None else set()
                self._fault = None if assigned else "no partitions assigned yet"
                if consumer is not None:
                    with suppress(KafkaError, TimeoutError):
                        async with asyncio.timeout(MEASURE_SECONDS):
                            await self._measure(consumer, assigned)
                await pause(1.0)
        finally:
            try:
                await self._broker.stop()
            finally:
                await self._producer.stop()

    def fault(self) -> str | None:
        """Why nothing is consumed now, None when the intake works."""
        return self._obstacle or self._fault

    async def _measure(self, consumer: AIOKafkaConsumer, assigned: Collection[TopicPartition]) -> None:
        """Show how far this member is behind in its partitions, and how many dead letters are kept."""
        behind: Counter[str] = Counter()
        for partition, end in (await consumer.end_offsets(assigned)).items() if assigned else ():
            first = self._in_hand.get(partition)
            handled = first.offset if first is not None else await consumer.position(partition)
            behind[partition.topic] += max(0, end - handled)
        for topic in self._topics:
            times = (first.timestamp for first in self._in_hand.values() if first.topic == topic.name)
            _lag_gauge.set(behind[topic.name], {"topic": topic.name})
            _age_gauge.set(max(0.0, time.time() - min(times, default=inf) / 1000), {"topic": topic.name})
        letters = [TopicPartition(self._dead_letters.name, number) for number in range(self._dead_letters.partitions)]
        begins, ends = await consumer.beginning_offsets(letters), await consumer.end_offsets(letters)
        _kept_gauge.set(sum(ends.values()) - sum(begins.values()))

    async def _on_batch(self, message: KafkaMessage) -> None:
        """Take a batch to its end. Nothing may be raised from here: FastStream would go on past the batch."""
        records: Sequence[Record] = message.raw_message
        for record in records:
            self._in_hand.setdefault(TopicPartition(record.topic, record.partition), record)
        events: list[tuple[Record, Event]] = []
        for record in records:
            try:
                events.append((record, self._read(record)))
            except MalformedEventError as error:
                await self._set_aside(record, error.reason, str(error))
        if events:
            await self._apply(events)
        self._in_hand.clear()
        await message.ack()

    async def _wrap_raw(self, records: Sequence[Record]) -> KafkaAckableMessage:
        """Wrap the records without decoding a header: one that is not UTF-8 must not cost the batch."""
        return KafkaAckableMessage(body=b"", raw_message=tuple(records), headers={}, consumer=self._subscriber.consumer)

    def _read(self, record: Record) -> Event:
        event = read_event(record.headers, record.value)
        if str(event.type) not in self._known_types():
            raise MalformedEventError("UNKNOWN_TYPE", f"no consumer for events of type {event.type}")
        return event

    async def _apply(self, events: Sequence[tuple[Record, Event]]) -> None:
        """Handle the events together; when one of them cannot be handled, each by itself."""
        try:
            await self._handle_patiently([event for _, event in events])
        except Exception as error:  # noqa: BLE001 - FastStream would go on past a batch whose handler raises
            if len(events) == 1:
                await self._set_aside(events[0][0], "UNPROCESSABLE", f"{type(error).__name__}: {error}")
                return
            for event in events:
                await self._apply([event])

    async def _handle_patiently(self, events: Sequence[Event]) -> None:
        for delay in _delays():
            spans = [self._start_span(event) for event in events]
            try:
                await self._handle([_within(span, event) for span, event in zip(spans, events, strict=True)])
                _consumed.add(len(events))
                self._obstacle = None
                return
            except (*DATABASE_AWAY, *NOT_MIGRATED) as error:
                if isinstance(error, ValueError):  # asyncpg's refusal of an argument is an InterfaceError as well
                    raise
                missing = schema_missing(error)
                self._obstacle = str(missing) if missing else f"the database is away: {type(error).__name__}"
                _log.warning("intake_waits_for_database", error=str(error), events=len(events))
                await pause(delay)
            finally:
                for span in spans:
                    span.end()

    def _start_span(self, event: Event) -> trace.Span:
        parent = propagate.extract({"traceparent": event.traceparent} if event.traceparent else {})
        return _tracer.start_span(f"process {event.type.name}", context=parent, kind=trace.SpanKind.CONSUMER)

    async def _set_aside(self, record: Record, reason: str, detail: str) -> None:
        """Keep the record as it came on the dead-letter topic; not to be able to is a fault of the batch."""
        origin = {
            dead_letters.REASON: reason,
            dead_letters.DETAIL: detail,
            dead_letters.TOPIC: record.topic,
            dead_letters.PARTITION: str(record.partition),
            dead_letters.OFFSET: str(record.offset),
            dead_letters.TIME: str(int(time.time() * 1000)),
        }
        kept = list(record.headers)
        # The client refuses a record with neither key nor value, which a broker may hold.
        key, value = record.key, b"" if record.value is None and record.key is None else record.value
        for delay in _delays():
            headers = [*kept, *((name, text.encode()) for name, text in origin.items())]
            try:
                await self._producer.send_and_wait(self._dead_letters.name, value=value, key=key, headers=headers)
                break
            except MessageSizeTooLargeError:
                # With its origin it is larger than it came: what the broker does not take is left where it came from.
                size = len(key or b"") + len(value or b"")
                detail = f"{detail} (its {size} bytes and its headers are too large to be kept here too)"
                origin |= {dead_letters.DETAIL: detail, dead_letters.LEFT: str(size)}
                kept, key, value = [], key if len(key or b"") <= KEPT_KEY_BYTES else None, b""
            except (KafkaError, TimeoutError) as error:
                self._obstacle = f"a dead letter cannot be written: {type(error).__name__}"
                _log.warning("dead_letter_waits_for_broker", error=str(error))
                await pause(delay)
        self._obstacle = None
        _dead.add(1, {"reason": reason})
        _log.warning("dead_letter", reason=reason, detail=detail, topic=record.topic, offset=record.offset)


def _within(span: trace.Span, event: Event) -> Event:
    """The event as a child of the span, so that the work it causes hangs below its consumption."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, trace.set_span_in_context(span))
    return replace(event, traceparent=carrier.get("traceparent", event.traceparent))


def _delays() -> Iterator[float]:
    """Seconds to wait after each failed try, for as long as it takes."""
    return chain(RETRY_SECONDS, repeat(RETRY_SECONDS[-1]))


async def _no_body(_: KafkaMessage) -> bytes:
    """The handler reads the raw records; there is no body to decode."""
    return b""


def _security(kafka: KafkaSettings) -> BaseSecurity | None:
    options = client_options(kafka)
    context = options.get("ssl_context")
    if not kafka.kafka_security_protocol.startswith("SASL"):
        return BaseSecurity(ssl_context=context, use_ssl=context is not None)
    kind = {"PLAIN": SASLPlaintext, "SCRAM-SHA-256": SASLScram256, "SCRAM-SHA-512": SASLScram512}
    return kind[kafka.kafka_sasl_mechanism](
        username=kafka.kafka_sasl_username or "",
        password=kafka.kafka_sasl_password or "",
        ssl_context=context,
        use_ssl=context is not None,
    )
