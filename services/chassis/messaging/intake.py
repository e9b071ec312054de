"""Consumes topics fast: a batch is one call of a handler that writes the database, then one commit of offsets.

Records are taken raw and parsed here, so that one bad record goes to the dead-letter topic and the rest of its batch
goes on. The offsets of a batch, and no others, are committed after the handler's transaction; while the database is
away it waits. So every event is handled at least once, and the handler must not mind a repetition.
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

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError, MessageSizeTooLargeError
from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256, SASLScram512
from opentelemetry import metrics, propagate, trace

from contracts.events import dead_letters
from contracts.events.envelope import Event, MalformedEventError, read_event
from contracts.events.topics import DEAD_LETTERS, Topic
from services.chassis.messaging.fetch import Record, UndecodableRecord, fetch
from services.chassis.messaging.kafka import client_options, ensure_topics, new_producer
from services.chassis.observability.logs import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY, NOT_MIGRATED, schema_missing
from services.chassis.settings import KafkaSettings
from services.chassis.stopping import end, pause

BATCH = 500
FINISH_SECONDS = 0.8
"""For the batch in hand at the end; one that is cut off is handled again."""
POLL_SECONDS = 0.05
MEASURE_SECONDS = 5.0
STALLED_SECONDS = 30.0
"""Without an end of what is in hand, or without a record of a partition that has some, before that is a fault."""
KEPT_KEY_BYTES = 1024
"""The longest key that is kept of a record that is too large to be kept whole."""
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
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
        self._stuck: str | None = None
        self._in_hand: dict[TopicPartition, Record] = {}
        self._has_more = False
        self._passed: dict[TopicPartition, tuple[int, float]] = {}
        self._last_progress = time.monotonic()
        self._is_leaving = False
        self._broker = KafkaBroker(
            kafka.kafka_bootstrap,
            security=_security(kafka),
            allow_auto_create_topics=False,
            logger=None,
        )
        self._subscriber = self._broker.subscriber(
            *(topic.name for topic in topics),
            group_id=group_id,
            auto_offset_reset="earliest",
            ack_policy=AckPolicy.MANUAL,
        )

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
            await self._watch(self._subscriber.consumer)
        finally:
            try:
                await self._broker.stop()
            finally:
                await self._producer.stop()

    def fault(self) -> str | None:
        """Why nothing is consumed now, or not all, None when the intake works."""
        if fault := self._obstacle or self._fault or self._stuck:
            return fault
        waited = time.monotonic() - self._last_progress
        return f"stalled for {waited:.0f} s" if waited > STALLED_SECONDS else None

    async def _watch(self, consumer: AIOKafkaConsumer) -> None:
        """Consume, and measure that, until cancelled. At the end the batch in hand has a little time."""
        self._is_leaving = False
        self._in_hand.clear()
        consuming = asyncio.create_task(self._consume(consumer))
        try:
            while not consuming.done():
                with suppress(KafkaError, TimeoutError):
                    async with asyncio.timeout(MEASURE_SECONDS):
                        await self._measure(consumer, consumer.assignment())
                await pause(1.0)
            consuming.result()
        finally:
            self._is_leaving = True
            await asyncio.wait({consuming}, timeout=FINISH_SECONDS)
            await end(consuming)

    async def _consume(self, consumer: AIOKafkaConsumer) -> None:
        while not self._is_leaving:
            records = await fetch(self._kafka, consumer, BATCH)
            self._has_more = len(records) == BATCH
            if records:
                await self._take(consumer, records)
            else:
                await pause(POLL_SECONDS)
            self._last_progress = time.monotonic()
            self._fault = None if consumer.assignment() else "no partitions assigned yet"

    async def _measure(self, consumer: AIOKafkaConsumer, assigned: Collection[TopicPartition]) -> None:
        """Show how far this member is behind in its partitions, and how many dead letters are kept."""
        behind: Counter[str] = Counter()
        passed: dict[TopicPartition, tuple[int, float]] = {}
        stuck: str | None = None
        for partition, end_offset in (await consumer.end_offsets(assigned)).items() if assigned else ():
            first = self._in_hand.get(partition)
            handled = first.offset if first is not None else await consumer.position(partition)
            left = max(0, end_offset - handled)
            behind[partition.topic] += left
            before, since = self._passed.get(partition, (None, 0.0))
            passed[partition] = handled, since if left and handled == before else time.monotonic()
            # With a full batch in hand it may be one that waits for its turn.
            if time.monotonic() - passed[partition][1] > STALLED_SECONDS and not self._has_more:
                stuck = f"{partition.topic}/{partition.partition} stands at {handled}, {left} records behind"
        self._passed, self._stuck = passed, stuck
        for topic in self._topics:
            times = (first.timestamp for first in self._in_hand.values() if first.topic == topic.name)
            _lag_gauge.set(behind[topic.name], {"topic": topic.name})
            _age_gauge.set(max(0.0, time.time() - min(times, default=inf) / 1000), {"topic": topic.name})
        letters = [TopicPartition(self._dead_letters.name, number) for number in range(self._dead_letters.partitions)]
        begins, ends = await consumer.beginning_offsets(letters), await consumer.end_offsets(letters)
        _kept_gauge.set(sum(ends.values()) - sum(begins.values()))

    async def _take(self, consumer: AIOKafkaConsumer, records: Sequence[Record]) -> None:
        """Take a batch to its end."""
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
        try:
            await consumer.commit({TopicPartition(one.topic, one.partition): one.offset + 1 for one in records})
        except (CommitFailedError, IllegalStateError) as error:
            # Partitions went to another member, who takes these again; what we keep starts at what is committed.
            _log.info("offsets_not_committed", error=type(error).__name__, records=len(records))
        self._in_hand.clear()

    def _read(self, record: Record) -> Event:
        if isinstance(record, UndecodableRecord):
            raise MalformedEventError("UNDECODABLE", f"{type(record.fault).__name__}: {record.fault}")
        event = read_event(record.headers, record.value)
        if str(event.type) not in self._known_types():
            raise MalformedEventError("UNKNOWN_TYPE", f"no consumer for events of type {event.type}")
        return event

    async def _apply(self, events: Sequence[tuple[Record, Event]]) -> None:
        """Handle the events together; when one of them cannot be handled, each by itself."""
        try:
            await self._handle_patiently([event for _, event in events])
        except Exception as error:  # noqa: BLE001 - whatever it was, the others of the batch go on
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
                self._last_progress = time.monotonic()
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
        if isinstance(record, UndecodableRecord):
            origin[dead_letters.LEFT] = dead_letters.UNKNOWN
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
        self._last_progress = time.monotonic()
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
