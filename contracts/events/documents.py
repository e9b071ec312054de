"""What is published of the events for those who have no Python: JSON Schemas, examples, the AsyncAPI document.

Pure functions of the event types, so that ``make generate`` writes the same bytes everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, TypeAlias
from uuid import UUID

from contracts.events import catalog, dead_letters, embeddings, files
from contracts.events.envelope import CONTENT_TYPE, MAX_ID, MAX_NAME, SPEC_VERSION, Event, EventType
from contracts.events.topics import ALL_TOPICS, CATALOG_EVENTS, DEAD_LETTERS, EMBEDDINGS_EVENTS, FILES_EVENTS, Topic

Json: TypeAlias = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_NO_NUL = r"^[^\x00]*$"
_EXAMPLE_TIME = datetime(2026, 1, 31, 9, 30, 15, 250_000, tzinfo=UTC)
_EXAMPLE_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_EXAMPLE_ID = 1_001
_EXAMPLE_NAME = "Depósito nº 2"


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """An event type, the topic that carries it, and what it says in one sentence."""

    type: EventType
    topic: Topic
    summary: str


def published_events(resource_types: Iterable[str]) -> list[PublishedEvent]:
    """Every event type of the contract; those of resources follow from the names of their types."""
    types = list(resource_types)
    return [
        PublishedEvent(files.FILE_UPLOADED, FILES_EVENTS, "A file's bytes are stored, or are to be processed again."),
        PublishedEvent(files.FILE_DELETED, FILES_EVENTS, "A file was deleted."),
        *(event for name in types for event in _catalog_events(name)),
        PublishedEvent(embeddings.FILE_EMBEDDED, EMBEDDINGS_EVENTS, "A file can be found by its present bytes."),
        PublishedEvent(embeddings.FILE_EMBEDDING_FAILED, EMBEDDINGS_EVENTS, "A file cannot be processed as it is."),
        PublishedEvent(embeddings.FILE_EMBEDDING_REMOVED, EMBEDDINGS_EVENTS, "A deleted file is found no more."),
        *(event for name in types for event in _embeddings_events(name)),
    ]


def _catalog_events(type_: str) -> list[PublishedEvent]:
    return [
        PublishedEvent(catalog.changed(type_), CATALOG_EVENTS, f"A resource of type {type_} was made or changed."),
        PublishedEvent(catalog.deleted(type_), CATALOG_EVENTS, f"A resource of type {type_} was deleted."),
    ]


def _embeddings_events(type_: str) -> list[PublishedEvent]:
    outcomes = {
        embeddings.resource_embedded: "can be found by what it is now",
        embeddings.resource_embedding_failed: "cannot be embedded as it is, and is not found",
        embeddings.resource_embedding_removed: "was deleted and is found no more",
    }
    return [
        PublishedEvent(make(type_), EMBEDDINGS_EVENTS, f"A resource of type {type_} {outcome}.")
        for make, outcome in outcomes.items()
    ]


def payload_schema() -> Json:
    """JSON Schema of the value of every event."""
    return {
        "$schema": DIALECT,
        "title": "Payload",
        "description": "The value of every event, a JSON object in UTF-8: which aggregate, and nothing of its state. "
        "Consumers ignore properties that are not named here.",
        "type": "object",
        "required": ["id", "name", "tenant"],
        "properties": {
            "id": {
                "description": "The aggregate's id, an integer without a fraction part; it may exceed 2^53.",
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_ID,
            },
            "name": {
                "description": "The aggregate's name when the event happened, empty where it has none.",
                "type": "string",
                "maxLength": MAX_NAME,
                "pattern": _NO_NUL,
            },
            "tenant": {
                "description": "The tenant that the aggregate belongs to.",
                "type": "string",
                "maxLength": MAX_NAME,
                "allOf": [{"pattern": _NO_NUL}, {"pattern": r"\S"}],
            },
        },
    }


def headers_schema() -> Json:
    """JSON Schema of the record headers of every event, each value decoded as UTF-8."""
    return {
        "$schema": DIALECT,
        "title": "Headers",
        "description": "CloudEvents 1.0 in binary mode. Consumers ignore headers that are not named here.",
        "type": "object",
        "required": ["ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time"],
        "properties": {
            "ce_specversion": {"const": SPEC_VERSION},
            "ce_id": {
                "description": "Made by the producer, a UUID of version 7; the same event sent twice keeps it.",
                "type": "string",
                "format": "uuid",
                "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
            },
            "ce_source": {
                "description": "Which producer says so, as a URI reference.",
                "type": "string",
                "minLength": 1,
            },
            "ce_type": {
                "description": "cauce.<context>.<Name>.v<version>. A change that old consumers cannot read is a new "
                "version.",
                "type": "string",
                "pattern": r"^cauce\.[a-z]+\.[A-Z][A-Za-z]*\.v[1-9][0-9]{0,8}$",
            },
            "ce_subject": {"description": "The aggregate's id, as the record's key.", "type": "string"},
            "ce_time": {
                "description": "When it happened, with the offset from UTC (RFC 3339).",
                "type": "string",
                "format": "date-time",
                "pattern": r"^(?!0001|9999)\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})$",
            },
            "content-type": {"const": CONTENT_TYPE},
            "traceparent": {
                "description": "The trace that the change belongs to (W3C Trace Context); one that is invalid is "
                "ignored.",
                "type": "string",
            },
        },
    }


def example(event: PublishedEvent) -> Json:
    """A golden example: the record as a producer sends it, the value not yet serialised."""
    # The version and variant bits make the number a UUIDv7 of the example's time; the rest tells the types apart.
    milliseconds = int(_EXAMPLE_TIME.timestamp() * 1_000)
    tail = int.from_bytes(sha256(str(event.type).encode()).digest()) % 2**62
    record = Event(
        event_id=UUID(int=milliseconds << 80 | 0x7 << 76 | 0b10 << 62 | tail),
        type=event.type,
        aggregate_id=_EXAMPLE_ID,
        name=_EXAMPLE_NAME,
        tenant_id="acme",
        time=_EXAMPLE_TIME,
        traceparent=_EXAMPLE_TRACE,
    )
    return {
        "topic": event.topic.name,
        "key": record.key,
        "headers": record.headers(),
        "value": record.payload,
    }


def asyncapi(events: Sequence[PublishedEvent]) -> Json:
    """The AsyncAPI 3.0 document of every topic, self-contained."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Cauce events",
            "version": "1",
            "description": "Thin domain events over Kafka: CloudEvents 1.0 in binary mode, keyed by aggregate id, "
            "delivered at least once, in order for each key. Topics are made with the stated number of partitions.",
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": {topic.name: _channel(topic, events) for topic in ALL_TOPICS},
        "operations": _operations(),
        "components": {
            "schemas": {"payload": _embedded(payload_schema()), "headers": _embedded(headers_schema())},
            "messages": {str(event.type): _message(event) for event in events} | {"deadLetter": _dead_letter()},
        },
    }


def _channel(topic: Topic, events: Sequence[PublishedEvent]) -> Json:
    names = [str(event.type) for event in events if event.topic is topic] or ["deadLetter"]
    return {
        "address": topic.name,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
        "bindings": {"kafka": {"topic": topic.name, "partitions": topic.partitions, "bindingVersion": "0.5.0"}},
    }


def _operations() -> Json:
    flows = [
        ("files", "send", FILES_EVENTS, "The files service announces what became of a file."),
        ("files", "send", CATALOG_EVENTS, "The files service announces changes of its catalogue."),
        ("embeddings", "receive", FILES_EVENTS, "The embeddings service notes which files want attention."),
        ("embeddings", "receive", CATALOG_EVENTS, "Likewise for resources, whoever the producer is."),
        ("embeddings", "send", EMBEDDINGS_EVENTS, "The embeddings service announces what became of an embedding."),
        ("embeddings", "send", DEAD_LETTERS, "It sets aside what it cannot read or handle, as it came."),
    ]
    return {
        f"{service}.{action}.{topic.name}": {
            "action": action,
            "channel": {"$ref": f"#/channels/{topic.name}"},
            "summary": summary,
        }
        for service, action, topic, summary in flows
    }


def _message(event: PublishedEvent) -> Json:
    record = example(event)
    return {
        "name": str(event.type),
        "title": event.type.name,
        "summary": event.summary,
        "contentType": CONTENT_TYPE,
        "headers": {
            "allOf": [
                {"$ref": "#/components/schemas/headers"},
                {"type": "object", "properties": {"ce_type": {"const": str(event.type)}}},
            ]
        },
        "payload": {"$ref": "#/components/schemas/payload"},
        "bindings": {"kafka": {"key": {"type": "string", "pattern": "^[1-9][0-9]*$"}, "bindingVersion": "0.5.0"}},
        "examples": [{"headers": record["headers"], "payload": record["value"]}],
    }


def _dead_letter() -> Json:
    return {
        "name": "deadLetter",
        "title": "Dead letter",
        "summary": "A record that could not be read or handled: its key, value and headers as they came, and more "
        "headers that say why.",
        "headers": {
            "type": "object",
            "required": list(dead_letters.HEADERS),
            "properties": {
                name: {"type": "string", "description": text} for name, text in dead_letters.HEADERS.items()
            },
        },
        "payload": {},
    }


def _embedded(schema: Mapping[str, Any]) -> Json:
    return {key: value for key, value in schema.items() if key != "$schema"}
