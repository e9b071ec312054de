"""The lifecycle of a file in the embeddings service: PENDING, PROCESSING, then COMPLETED or FAILED."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class Outcome(StrEnum):
    """How a COMPLETED file ended. EMPTY carries a reason: no usable text is never silently complete."""

    INDEXED = "INDEXED"
    EMPTY = "EMPTY"


class Stage(StrEnum):
    """What a worker is doing with a file now."""

    EXTRACTING = "EXTRACTING"
    DESCRIBING = "DESCRIBING"
    EMBEDDING = "EMBEDDING"
    STORING = "STORING"


@dataclass(frozen=True, slots=True)
class ClaimedFile:
    """A file under a lease. ``lease_token`` fences every write; ``generation`` is what was asked for at the claim."""

    file_id: int
    tenant_id: str
    name: str
    generation: int
    attempts: int
    lease_token: UUID
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class FileContext:
    """A stored file as the context view shows it."""

    file_id: int
    tenant_id: str
    name: str
    media_type: str
    size_bytes: int
    storage_key: str
    revision: int


@dataclass(frozen=True, slots=True)
class FileResult:
    """How the reconcile of a file ended, and on which revision of it."""

    revision: int
    media_type: str
    page_count: int | None
    outcome: Outcome
    outcome_reason: str | None
    space_id: int
