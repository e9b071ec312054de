"""The envelope of an event: what is written is read, and what is refused is refused with its reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.events.envelope import MAX_ID, MAX_NAME, Event, EventType, MalformedEventError, read_event

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
EVENT = Event(
    event_id=UUID("01990000-0000-7000-8000-000000000001"),
    type=EventType("catalog", "PumpChanged"),
    aggregate_id=7,
    name="Bomba 7 ñ",
    tenant_id="acme",
    time=datetime(2026, 1, 31, 9, 30, tzinfo=UTC),
    traceparent=TRACE,
)

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50)
events = st.builds(
    Event,
    event_id=st.uuids(),
    type=st.builds(
        EventType,
        st.from_regex(r"[a-z]+", fullmatch=True),
        st.from_regex(r"[A-Z][A-Za-z]*", fullmatch=True),
        st.integers(1, 999_999_999),
    ),
    aggregate_id=st.integers(1, MAX_ID),
    name=texts,
    tenant_id=texts.filter(str.strip),
    time=st.datetimes(timezones=st.just(UTC)),
    traceparent=st.none() | st.just(TRACE),
)


def headers(event: Event = EVENT, **changes: bytes | None) -> list[tuple[str, bytes | None]]:
    encoded: dict[str, bytes | None] = {name: text.encode() for name, text in event.headers().items()}
    return list((encoded | {name.replace("__", "-"): value for name, value in changes.items()}).items())


@given(events)
def test_what_is_written_is_read(event: Event) -> None:
    assert read_event(headers(event), event.value()) == event


def test_the_key_and_the_subject_are_the_aggregate() -> None:
    assert EVENT.key == EVENT.headers()["ce_subject"] == "7"


def test_an_id_may_be_written_as_any_integer_of_the_schema() -> None:
    assert read_event(headers(), json.dumps({**EVENT.payload, "id": 7.0}).encode()) == EVENT


def test_an_unknown_payload_field_is_passed_over() -> None:
    assert read_event(headers(), json.dumps({**EVENT.payload, "unit": "m"}).encode()) == EVENT


@pytest.mark.parametrize("value", [None, b"", b"\xff\x00"])
def test_a_header_that_is_none_of_ours_is_passed_over(value: bytes | None) -> None:
    assert read_event(headers(x__b3__sampled=value), EVENT.value()) == EVENT


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"00-x", TRACE.encode() + b"\n", TRACE.encode() * 1_000])
def test_a_broken_trace_does_not_cost_the_event(value: bytes | None) -> None:
    assert read_event(headers(traceparent=value), EVENT.value()).traceparent is None


@pytest.mark.parametrize("name", ["ce_specversion", "ce_id", "ce_time", "ce_type"])
@pytest.mark.parametrize("value", [None, b"", b"\xff"])
def test_an_attribute_that_cannot_be_read_is_refused(name: str, value: bytes | None) -> None:
    with pytest.raises(MalformedEventError) as caught:
        read_event(headers(**{name: value}), EVENT.value())
    assert caught.value.reason == ("INVALID_TYPE" if (name, value) == ("ce_type", b"") else "INVALID_ENVELOPE")


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"7", b"[]", b"null", b'{"id": 7}', b"[" * 100_000])
def test_a_value_that_is_no_payload_is_refused(value: bytes | None) -> None:
    with pytest.raises(MalformedEventError) as caught:
        read_event(headers(), value)
    assert caught.value.reason == "INVALID_PAYLOAD"


def test_the_longest_name_is_read_and_a_longer_one_is_not() -> None:
    def with_name(length: int) -> bytes:
        return json.dumps({**EVENT.payload, "name": "ñ" * length}).encode()

    assert len(read_event(headers(), with_name(MAX_NAME)).name) == MAX_NAME
    with pytest.raises(MalformedEventError, match="name"):
        read_event(headers(), with_name(MAX_NAME + 1))


def test_a_type_of_a_future_version_is_read_as_such() -> None:
    assert EventType.parse("cauce.files.FileUploaded.v2") == EventType("files", "FileUploaded", 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "FileUploaded",
        "cauce.files.FileUploaded",
        "cauce.files.FileUploaded.v0",
        "cauce.files.FileUploaded.v" + "1" * 5_000,
        "cauce.files.FileUploaded.v١",
        "cauce.files.FileUploaded.v1\n",
        " cauce.files.FileUploaded.v1",
        "cauce.files.fileUploaded.v1",
        "cauce.Files.FileUploaded.v1",
    ],
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(MalformedEventError) as caught:
        EventType.parse(text)
    assert caught.value.reason == "INVALID_TYPE"


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.none()
)


@given(st.dictionaries(st.text(max_size=10), st.binary(max_size=20) | st.none()), st.binary() | st.none())
def test_no_record_is_too_strange(raw: dict[str, bytes | None], value: bytes | None) -> None:
    with pytest.raises(MalformedEventError):
        read_event(raw.items(), value)


@given(st.fixed_dictionaries({}, optional={"id": anything, "name": anything, "tenant": anything}))
def test_no_payload_is_too_strange(payload: dict[str, Any]) -> None:
    try:
        event = read_event(headers(), json.dumps(payload).encode())
    except MalformedEventError:
        return
    assert event.payload == payload
