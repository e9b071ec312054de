"""Records that aiokafka can send, but not read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from contracts.events.envelope import Event
from services.chassis.messaging.kafka import client_options
from services.chassis.settings import KafkaSettings


class NotUtf8(str):
    """A header's name that is not UTF-8. Only aiokafka's encoder in Python asks it."""

    def encode(self, *_: str) -> bytes:
        """Return bytes that no decoder takes."""
        return b"\xff\xfe"


async def publish_in_one(
    settings: KafkaSettings,
    topic: str,
    partition: int,
    records: Sequence[Event | None],
    *,
    compression: str | None = None,
) -> None:
    """Publish the events to the partition in one batch; None is a record that cannot be decoded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aiokafka.producer.message_accumulator.DefaultRecordBatchBuilder", _DefaultRecordBatchBuilderPy)
        async with AIOKafkaProducer(**client_options(settings), compression_type=compression) as producer:
            batch = producer.create_batch()
            for record in records:
                headers = [(name, text.encode()) for name, text in record.headers().items()] if record else []
                value, bad = (record.value(), []) if record else (b"secret", [(NotUtf8("name"), b"x")])
                batch.append(timestamp=None, key=None, value=value, headers=headers + bad)
            await (await producer.send_batch(batch, topic, partition=partition))
