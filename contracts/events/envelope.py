"""CloudEvents 1.0 in binary mode: attributes in ``ce_`` headers, a JSON object as the value.

An event says that something changed, never what it is now: the payload is id, name and tenant.
Reading is strict about what it knows and tolerant of the rest: a producer, or the tracing of one, may add payload
fields and headers. ``contracts/events/schemas`` says the same in JSON Schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

CONTENT_TYPE = "application/json"
SPEC_VERSION = "1.0"

MAX_ID = 2**63 - 1
MAX_NAME = 1_000
"""Characters of a name, and of a tenant."""

_TYPE = re.compile(r"cauce\.(?P<context>[a-z]+)\.(?P<name>[A-Z][A-Za-z]*)\.v(?P<version>[1-9][0-9]{0,8})")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_REQUIRED = ("ce_specversion", "ce_id", "ce_time", "ce_type")


class MalformedEventError(ValueError):
    """The record is not an event of this contract. ``reason`` is a stable code, the message says why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class EventType:
    """The CloudEvents type ``cauce.<context>.<Name>.v<version>``, for instance ``cauce.files.FileUploaded.v1``."""

    context: str
    name: str
    version: int = 1

    def __str__(self) -> str:
        return f"cauce.{self.context}.{self.name}.v{self.version}"

    @classmethod
    def parse(cls, text: str) -> EventType:
        """Read a type attribute.

        Raises:
            MalformedEventError: ``INVALID_TYPE``.
        """
        match = _TYPE.fullmatch(text)
        if match is None:
            raise MalformedEventError("INVALID_TYPE", f"{text!r} is not an event type of this contract")
        return cls(match["context"], match["name"], int(match["version"]))


@dataclass(frozen=True, slots=True)
class Event:
    """A thin domain event: that something happened to one aggregate of one tenant."""

    event_id: UUID
    type: EventType
    aggregate_id: int
    name: str
    tenant_id: str
    time: datetime
    traceparent: str | None = None

    @property
    def key(self) -> str:
        """The record key: the aggregate's id, so that one aggregate's events stay in order."""
        return str(self.aggregate_id)

    @property
    def payload(self) -> dict[str, int | str]:
        """The record's JSON object: ``id``, ``name`` and ``tenant``."""
        return {"id": self.aggregate_id, "name": self.name, "tenant": self.tenant_id}

    def headers(self) -> dict[str, str]:
        """The record's headers, CloudEvents binary mode; ``traceparent`` where a trace is known."""
        headers = {
            "ce_specversion": SPEC_VERSION,
            "ce_id": str(self.event_id),
            "ce_source": f"/cauce/{self.type.context}",
            "ce_type": str(self.type),
            "ce_subject": self.key,
            "ce_time": self.time.isoformat(),
            "content-type": CONTENT_TYPE,
        }
        if self.traceparent is not None:
            headers["traceparent"] = self.traceparent
        return headers

    def value(self) -> bytes:
        """The record's value: the payload as UTF-8 JSON."""
        return json.dumps(self.payload, ensure_ascii=False).encode()


def read_event(headers: Iterable[tuple[str, bytes | None]], value: bytes | None) -> Event:
    """Read a record of a topic as an event. A ``traceparent`` that is none is left out: a trace is no reason to refuse.

    Raises:
        MalformedEventError: with a reason code, for whatever is not an event of this contract.
    """
    raw = dict(headers)
    attributes = {name: _read_attribute(raw, name) for name in _REQUIRED}
    if attributes["ce_specversion"] != SPEC_VERSION:
        raise MalformedEventError("INVALID_ENVELOPE", f"ce_specversion must be {SPEC_VERSION}")
    event_type = EventType.parse(attributes["ce_type"])
    try:
        event_id = UUID(attributes["ce_id"])
        time = datetime.fromisoformat(attributes["ce_time"])
        if time.tzinfo is None:
            raise MalformedEventError("INVALID_ENVELOPE", "ce_time must say its offset from UTC")
        time = time.astimezone(UTC)
    except MalformedEventError:
        raise
    except (ValueError, OverflowError) as error:
        raise MalformedEventError("INVALID_ENVELOPE", f"ce_id or ce_time cannot be read: {error}") from error
    aggregate_id, name, tenant_id = _read_payload(value)
    return Event(event_id, event_type, aggregate_id, name, tenant_id, time, _read_traceparent(raw))


def _read_attribute(raw: Mapping[str, bytes | None], name: str) -> str:
    data = raw.get(name)
    if data is None:
        raise MalformedEventError("INVALID_ENVELOPE", f"the header {name} is missing")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedEventError("INVALID_ENVELOPE", f"the header {name} is not UTF-8") from error


def _read_traceparent(raw: Mapping[str, bytes | None]) -> str | None:
    text = (raw.get("traceparent") or b"").decode(errors="replace")
    return text if _TRACEPARENT.fullmatch(text) else None


def _read_payload(value: bytes | None) -> tuple[int, str, str]:
    try:
        payload = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        raise MalformedEventError("INVALID_PAYLOAD", "the value is not JSON") from error
    if not isinstance(payload, dict):
        raise MalformedEventError("INVALID_PAYLOAD", "the value is not a JSON object")
    aggregate_id = payload.get("id")
    if isinstance(aggregate_id, float) and aggregate_id.is_integer():
        aggregate_id = int(aggregate_id)  # 1.0 is an integer of JSON Schema
    if not isinstance(aggregate_id, int) or isinstance(aggregate_id, bool) or not 0 < aggregate_id <= MAX_ID:
        raise MalformedEventError("INVALID_PAYLOAD", "id must be an integer from 1 to 2^63-1")
    name, tenant_id = _read_text(payload, "name"), _read_text(payload, "tenant")
    if not tenant_id.strip():
        raise MalformedEventError("INVALID_PAYLOAD", "tenant must not be blank")
    return aggregate_id, name, tenant_id


def _read_text(payload: Mapping[str, object], field: str) -> str:
    text = payload.get(field)
    if not isinstance(text, str) or len(text) > MAX_NAME or "\x00" in text:
        raise MalformedEventError("INVALID_PAYLOAD", f"{field} must be text of at most {MAX_NAME} characters, none NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MalformedEventError("INVALID_PAYLOAD", f"{field} holds a lone surrogate") from error
    return text
