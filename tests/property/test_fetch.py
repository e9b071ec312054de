"""A batch of records that came to harm gives what can be read of it, and says what cannot."""

from __future__ import annotations

from aiokafka import TopicPartition
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.messaging.fetch import UndecodableRecord, _records

PARTITION = TopicPartition("topic", 0)
HEAD_BYTES = 61


def batch(base: int, codec: int) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 10_000)
    for number in range(4):
        builder.append(number, timestamp=1, key=b"1", value=b"value " * 9, headers=[("name", b"x"), ("none", None)])
    data = bytearray(builder.build())
    data[:8] = base.to_bytes(8)
    return data


@given(
    st.sampled_from([0, 1, 2, 3, 4]),
    st.lists(st.tuples(st.integers(HEAD_BYTES - 4, 400), st.integers(0, 255)), max_size=4),
    st.integers(95, 103),
)
def test_a_batch_that_came_to_harm_is_not_passed_over_and_what_is_behind_comes_whole(codec, changes, first):
    harmed = batch(100, codec)
    for place, byte in changes:
        if place < len(harmed):
            harmed[place] = byte
    harmed[17:21] = calc_crc32c(memoryview(harmed)[21:]).to_bytes(4)

    records = list(_records(PARTITION, bytes(harmed + batch(104, codec)), first))

    offsets = [record.offset for record in records]
    of_harmed = [record for record in records if record.offset < 104]
    assert of_harmed
    assert offsets[-4:] == [104, 105, 106, 107]
    assert not any(isinstance(record, UndecodableRecord) for record in records[-4:])
    if not changes:
        assert offsets == list(range(max(first, 100), 108))
        assert all(record.value == b"value " * 9 and len(record.headers) == 2 for record in records)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_batch_end_it(data):
    assert all(isinstance(record, UndecodableRecord) for record in _records(PARTITION, data, 1))
