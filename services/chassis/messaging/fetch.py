"""Takes records from a consumer so that one that cannot be decoded costs no other.

aiokafka decodes a record when it is taken. Where that fails it has moved past what it took of other partitions in the
same call, gives nothing more of that one's batch, and does the same again whenever it is asked. So each partition is
asked by itself, and one that fails is read again here, each record alone.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from aiokafka.consumer.fetcher import READ_UNCOMMITTED, PartitionRecords
from aiokafka.errors import ConsumerStoppedError, CorruptRecordException, KafkaError, UnsupportedCodecError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record import MemoryRecords
from aiokafka.record.util import decode_varint_py

from services.chassis.messaging.kafka import client_options
from services.chassis.settings import KafkaSettings

READ_MS = 500
READ_BYTES = 2**20
"""At least; a larger batch comes whole."""

# The layout of a batch, https://kafka.apache.org/documentation/#recordbatch
_PLACE = struct.Struct(">qi")
_ATTRIBUTES = slice(21, 23)
_COUNT = slice(57, 61)
_CODEC = 0x07
_DECODE: Mapping[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: gzip_decode,
    2: snappy_decode,
    3: lz4_decode,
    4: zstd_decode,
}

Record: TypeAlias = ConsumerRecord


@dataclass(frozen=True, slots=True)
class UndecodableRecord:
    """Stands for a record that the client cannot decode: where it is and what is wrong, and nothing of what it holds.

    Attributes:
        timestamp: when it was found, in milliseconds since 1970.
    """

    topic: str
    partition: int
    offset: int
    fault: Exception
    timestamp: int = field(default_factory=lambda: int(time.time() * 1000))
    key: None = None
    value: None = None
    headers: tuple[()] = ()


async def fetch(
    kafka: KafkaSettings, consumer: AIOKafkaConsumer, limit: int, *, timeout_ms: int = 0
) -> Sequence[Record]:
    """Up to ``limit`` records that are here by now, those of a partition in order. Commits nothing.

    Args:
        kafka: the broker.
        consumer: with partitions assigned.
        limit: of records.
        timeout_ms: how long to wait for each partition.

    Raises:
        KafkaError: a fault of the broker or of the group.
    """
    partitions = list(consumer.assignment())
    random.shuffle(partitions)  # none waits behind the others' backlog
    records: list[Record] = []
    for partition in partitions:
        try:
            taken = await consumer.getmany(partition, timeout_ms=timeout_ms, max_records=limit - len(records))
        except Exception as error:
            if not _is_undecodable(error):
                raise
            position = await consumer.position(partition)
            again = list(islice(await _read(kafka, partition, position), limit - len(records)))
            if again:
                consumer.seek(partition, again[-1].offset + 1)
            records += again
        else:
            records += taken.get(partition, ())
        if len(records) == limit:
            break
    return records


def _is_undecodable(error: Exception) -> bool:
    """Whether it is the record's fault, as against the broker's or the group's."""
    if isinstance(error, CorruptRecordException | UnsupportedCodecError):
        return True
    return not isinstance(error, KafkaError | ConsumerStoppedError | OSError)


async def _read(kafka: KafkaSettings, partition: TopicPartition, first: int) -> Iterator[Record]:
    """What the broker gives of the partition from this offset on. Raises KafkaError."""
    wanted = [(partition.topic, [(partition.partition, first, READ_BYTES)])]
    client = AIOKafkaClient(**client_options(kafka))
    try:
        await client.bootstrap()
        await client.add_topic(partition.topic)
        leader = client.cluster.leader_for_partition(partition)
        answer = await client.send(leader, FetchRequest(READ_MS, 1, READ_BYTES, READ_UNCOMMITTED, wanted))
    finally:
        await client.close()
    ((_, ((_, code, *_, data),)),) = answer.topics
    if code:
        raise for_code(code)(f"{partition.topic}/{partition.partition}")
    return _records(partition, data, first)


def _records(partition: TopicPartition, data: bytes, position: int) -> Iterator[Record]:
    """The records of the batches from this offset on. A batch that cannot be taken apart counts as one record."""
    at = 0
    while at + _PLACE.size <= len(data):
        base, length = _PLACE.unpack_from(data, at)
        batch, at = data[at : at + _PLACE.size + length], at + _PLACE.size + length
        if length <= 0 or at > len(data):
            return
        position = max(position, base)
        try:
            parts = _taken_apart(batch)
        except Exception as error:  # noqa: BLE001 - what the bytes of others lead to
            yield UndecodableRecord(partition.topic, partition.partition, position, error)
            continue
        for offset, part in parts:
            try:
                alone = MemoryRecords(part)
                yield from PartitionRecords(partition, alone, None, position, None, None, False, READ_UNCOMMITTED)
            except Exception as error:  # noqa: BLE001 - what the bytes of others lead to
                if offset >= position:
                    yield UndecodableRecord(partition.topic, partition.partition, offset, error)


def _taken_apart(batch: bytes) -> Sequence[tuple[int, bytes]]:
    """Each record with its offset, as a batch of its own. Raises whatever the bytes lead to."""
    if not MemoryRecords(batch).next_batch().validate_crc():
        raise CorruptRecordException("the checksum of its batch is wrong")
    (base, _), attributes = _PLACE.unpack_from(batch), int.from_bytes(batch[_ATTRIBUTES])
    records = bytearray(_DECODE[attributes & _CODEC](batch[_COUNT.stop :]))
    plain = (attributes & ~_CODEC).to_bytes(2)
    parts: list[tuple[int, bytes]] = []
    at = 0
    for _ in range(int.from_bytes(batch[_COUNT])):
        length, start = decode_varint_py(records, at)
        if length < 0:
            raise CorruptRecordException(f"a record of its batch says that it has {length} bytes")
        _, behind = decode_varint_py(records, start + 1)  # its attributes, then the time
        offset, _ = decode_varint_py(records, behind)
        record, at = records[at : start + length], start + length
        head = batch[_PLACE.size : _ATTRIBUTES.start] + plain + batch[_ATTRIBUTES.stop : _COUNT.start]
        body = head + (1).to_bytes(4) + record
        parts.append((base + offset, _PLACE.pack(base, len(body)) + body))
    if at != len(records):
        raise CorruptRecordException("its batch has more bytes than its records")
    return parts
