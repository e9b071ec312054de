"""Every named step at which a process can be killed, and the request by which the step is known from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from contracts.events.topics import EMBEDDINGS_EVENTS, FILES_EVENTS, Topic
from tests.faults.links import OFFSET_COMMIT, PRODUCE, Request, When

BEFORE, AFTER = When.BEFORE, When.AFTER
Matcher = Callable[[Request], bool]


@dataclass(frozen=True)
class CrashPoint:
    """Kill ``role`` at this request. ``on_broker``: it goes to the broker, else to the database."""

    name: str
    role: str
    matches: Matcher
    when: When
    on_broker: bool = False
    with_rows: bool = False


def statement(*parts: str, data: bytes = b"") -> Matcher:
    """A statement that holds all of these, with parameters that hold ``data``."""
    return lambda request: all(part in request.text for part in parts) and data in request.data


def commit_of(part: str) -> Matcher:
    """The commit of a transaction in which there was such a statement."""
    return lambda request: request.text.startswith("COMMIT") and any(part in text for text in request.transaction)


def to_broker(kind: int, topic: Topic) -> Matcher:
    """A request to the broker that names the topic."""
    return lambda request: request.text == str(kind) and topic.name.encode() in request.data


def relay_points(role: str, table: str, topic: Topic) -> list[CrashPoint]:
    """The steps of an outbox relay."""
    pending = statement("SELECT position", f"FROM {table}")
    delete = statement(f"DELETE FROM {table}")
    publish = to_broker(PRODUCE, topic)
    return [
        CrashPoint(f"{role}: before publishing", role, pending, AFTER, with_rows=True),
        CrashPoint(f"{role}: publishing, not arrived", role, publish, BEFORE, on_broker=True),
        CrashPoint(f"{role}: published, before the acknowledgement", role, publish, AFTER, on_broker=True),
        CrashPoint(f"{role}: acknowledged, before the outbox delete", role, delete, BEFORE),
        CrashPoint(f"{role}: after the outbox delete", role, delete, AFTER),
    ]


INTAKE = "INSERT INTO module_embeddings_files_file"
INTAKE_OF_RESOURCES = commit_of("INSERT INTO module_embeddings_resource AS mirror")
OFFSETS = to_broker(OFFSET_COMMIT, FILES_EVENTS)
STAGE = "SET lease_expires_at"
CLAIM = statement("UPDATE module_embeddings_files_file", "gen_random_uuid()")
COMPLETE = statement("UPDATE module_embeddings_files_file", "'COMPLETED'")
REPLACE = commit_of("'COMPLETED'")
CLAIM_OF_RESOURCES = statement("UPDATE module_embeddings_resource", "gen_random_uuid()")
REPLACE_OF_RESOURCES = commit_of('INSERT INTO "module_embeddings_tag"')
WORKER = "worker-1"

CRASH_POINTS = [
    CrashPoint("files: before the outbox commit", "files", commit_of("INSERT INTO module_files_outbox"), BEFORE),
    CrashPoint("files: after the outbox commit", "files", commit_of("INSERT INTO module_files_outbox"), AFTER),
    *relay_points("files", "module_files_outbox", FILES_EVENTS),
    CrashPoint("embeddings: before the intake commit", "embeddings", commit_of(INTAKE), BEFORE),
    CrashPoint("embeddings: after the intake commit", "embeddings", commit_of(INTAKE), AFTER),
    CrashPoint("embeddings: before the intake commit of resources", "embeddings", INTAKE_OF_RESOURCES, BEFORE),
    CrashPoint("embeddings: after the intake commit of resources", "embeddings", INTAKE_OF_RESOURCES, AFTER),
    CrashPoint("embeddings: before the offset commit", "embeddings", OFFSETS, BEFORE, on_broker=True),
    CrashPoint("embeddings: after the offset commit", "embeddings", OFFSETS, AFTER, on_broker=True),
    *relay_points("embeddings", "module_embeddings_outbox", EMBEDDINGS_EVENTS),
    CrashPoint("worker: before the claim", WORKER, CLAIM, BEFORE),
    CrashPoint("worker: after the claim", WORKER, CLAIM, AFTER, with_rows=True),
    CrashPoint("worker: before the extraction", WORKER, statement(STAGE, data=b"EXTRACTING"), AFTER),
    CrashPoint("worker: extracted, before the model call", WORKER, statement(STAGE, data=b"EMBEDDING"), BEFORE),
    CrashPoint("worker: at the model call", WORKER, statement(STAGE, data=b"EMBEDDING"), AFTER),
    CrashPoint("worker: after the model call", WORKER, statement(STAGE, data=b"STORING"), BEFORE),
    CrashPoint("worker: before the replace", WORKER, COMPLETE, BEFORE),
    CrashPoint("worker: status written, before the chunks", WORKER, COMPLETE, AFTER),
    CrashPoint("worker: chunks half written", WORKER, statement("COPY", "module_embeddings_file_chunk"), BEFORE),
    CrashPoint("worker: event written, before the commit", WORKER, REPLACE, BEFORE),
    CrashPoint("worker: after the commit", WORKER, REPLACE, AFTER),
    CrashPoint("worker: after the claim of resources", WORKER, CLAIM_OF_RESOURCES, AFTER, with_rows=True),
    CrashPoint("worker: before the commit of resources", WORKER, REPLACE_OF_RESOURCES, BEFORE),
    CrashPoint("worker: after the commit of resources", WORKER, REPLACE_OF_RESOURCES, AFTER),
]
