"""The topic of dead letters, read by a consumer of no group: nothing is committed, nothing is taken away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from contracts.events import dead_letters
from contracts.events.topics import Topic
from services.chassis.kernel.errors import ConflictError, UnavailableError
from services.chassis.messaging.fetch import Record, fetch
from services.chassis.messaging.kafka import client_options, new_producer
from services.chassis.settings import KafkaSettings
from services.embeddings.domain.dead_letter import DeadLetter, Origin, Place, Replay, ReplayOutcome

READ_SECONDS = 15.0
WATCH_SECONDS = 10.0
POLL_SECONDS = 0.2
RECORDS_AT_ONCE = 50


class KafkaDeadLetters:
    """Implements the DeadLetters port.

    Args:
        kafka: the broker.
        topic: where dead letters are.
        origins: the topics that a record may be sent to again.
        group_id: the group that consumes those.
    """

    def __init__(self, kafka: KafkaSettings, *, topic: Topic, origins: Collection[Topic], group_id: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._origins = {origin.name: origin for origin in origins}
        self._group_id = group_id

    async def read(self, limit: int, after: Place | None) -> Sequence[DeadLetter]:
        """Up to ``limit`` of them behind ``after``, in order of their place. Raises UnavailableError."""
        with _faults():
            async with asyncio.timeout(READ_SECONDS), self._consumer() as consumer:
                starts = {after.partition: after.offset + 1} if after else {}
                first = after.partition if after else 0
                letters: list[DeadLetter] = []
                async for letter in self._letters(consumer, range(first, self._topic.partitions), starts):
                    letters.append(letter)
                    if len(letters) == limit:
                        break
                return letters

    async def find(self, place: Place) -> DeadLetter | None:
        """The one at this place. Raises UnavailableError."""
        if place.partition >= self._topic.partitions:
            return None
        with _faults():
            async with asyncio.timeout(READ_SECONDS), self._consumer() as consumer:
                async for letter in self._letters(consumer, (place.partition,), {place.partition: place.offset}):
                    return letter if letter.place == place else None
        return None

    async def replay(self, letter: DeadLetter) -> Replay:
        """Publish the record where it came from, and look what becomes of it. Raises ConflictError, UnavailableError.

        A record keeps its partition, so that it stays in order with others of its key whoever chose that partition.
        """
        origin = letter.origin
        if origin is None or not self._is_consumed(origin):
            raise ConflictError(
                "NOT_REPLAYABLE",
                "the record does not say a place that is consumed here",
                where=str(letter.place),
                remedy=f"topics that are consumed: {', '.join(self._origins)}",
            )
        with _faults():
            async with asyncio.timeout(READ_SECONDS + WATCH_SECONDS), self._consumer() as consumer:
                partitions = [TopicPartition(self._topic.name, number) for number in range(self._topic.partitions)]
                ends = await consumer.end_offsets(partitions)
                async with new_producer(self._kafka) as producer:
                    sent = await producer.send_and_wait(
                        origin.topic,
                        value=letter.value,
                        key=letter.key,
                        headers=list(letter.headers),
                        partition=origin.place.partition,
                    )
                sent_to = Origin(sent.topic, Place(sent.partition, sent.offset))
                if not await self._is_passed(sent_to):
                    return Replay(sent_to, ReplayOutcome.WAITING)
                # A record is set aside before its offset is committed, so one that came back is there by now.
                starts = {partition.partition: end for partition, end in ends.items()}
                async for newer in self._letters(consumer, range(self._topic.partitions), starts):
                    if newer.origin == sent_to:
                        return Replay(sent_to, ReplayOutcome.SET_ASIDE, newer)
                return Replay(sent_to, ReplayOutcome.HANDLED)

    def _is_consumed(self, origin: Origin) -> bool:
        topic = self._origins.get(origin.topic)
        return topic is not None and origin.place.partition < topic.partitions

    async def _is_passed(self, origin: Origin) -> bool:
        """Wait, but not for long, until the consuming group has gone past the record."""
        partition = TopicPartition(origin.topic, origin.place.partition)
        deadline = time.monotonic() + WATCH_SECONDS
        # Of the group, but never a member: it subscribes to nothing.
        async with AIOKafkaConsumer(
            group_id=self._group_id, enable_auto_commit=False, **client_options(self._kafka)
        ) as (consumer):
            while time.monotonic() < deadline:
                if (await consumer.committed(partition) or 0) > origin.place.offset:
                    return True
                await asyncio.sleep(POLL_SECONDS)
        return False

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            group_id=None, enable_auto_commit=False, auto_offset_reset="earliest", **client_options(self._kafka)
        )
        try:
            await consumer.start()
            yield consumer
        finally:
            await consumer.stop()

    async def _letters(
        self, consumer: AIOKafkaConsumer, partitions: Sequence[int], starts: dict[int, int]
    ) -> AsyncIterator[DeadLetter]:
        """What the partitions hold now, one partition after the other, each from its start (or from its beginning)."""
        wanted = [TopicPartition(self._topic.name, number) for number in partitions]
        begins, ends = await consumer.beginning_offsets(wanted), await consumer.end_offsets(wanted)
        for partition in wanted:
            position, end = max(begins[partition], starts.get(partition.partition, 0)), ends[partition]
            if position < end:
                consumer.assign([partition])
                consumer.seek(partition, position)
            while position < end:
                for record in await fetch(self._kafka, consumer, RECORDS_AT_ONCE, timeout_ms=500):
                    if record.offset < end:
                        yield _letter(record)
                position = await consumer.position(partition)


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as error:
        raise UnavailableError(
            "BROKER_UNAVAILABLE", f"the broker does not answer: {type(error).__name__}", remedy="try again"
        ) from error


def _letter(record: Record) -> DeadLetter:
    said = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
    return DeadLetter(
        place=Place(record.partition, record.offset),
        reason=said.get(dead_letters.REASON),
        detail=said.get(dead_letters.DETAIL),
        set_aside_at=datetime.fromtimestamp(record.timestamp / 1000, UTC),
        origin=_origin(said),
        headers=[(name, value) for name, value in record.headers if name not in dead_letters.HEADERS],
        key=record.key,
        value=record.value,
        is_whole=dead_letters.LEFT not in said,
    )


def _origin(said: dict[str, str]) -> Origin | None:
    try:
        place = Place.parse(f"{said[dead_letters.PARTITION]}/{said[dead_letters.OFFSET]}")
        return Origin(said[dead_letters.TOPIC], place)
    except (KeyError, ValueError):
        return None
