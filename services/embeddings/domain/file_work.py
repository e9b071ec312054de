"""The lifecycle of a file in the embeddings service: PENDING, PROCESSING, then COMPLETED or FAILED."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID

from services.embeddings.domain.document import PageKind, PageLayout
from services.embeddings.domain.enrichment import ImageDescription

LARGE_BYTES = 8 * 2**20
"""A file of more is large, as is one found to be much work: it may take minutes, and never a worker's last place."""


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
class FileContext:
    """What the source of record says of a stored file, read together with the claim.

    ``language`` is the tag (``es``) that its metadata declares for its text, None where that is for us to find out.
    ``by_line`` says that its metadata declares each line of it to be a passage.
    """

    media_type: str
    size_bytes: int
    storage_key: str
    revision: int
    language: str | None = None
    by_line: bool = False


@dataclass(frozen=True, slots=True)
class ClaimedFile:
    """A file under a lease.

    Attributes:
        generation: what was asked for at the claim; a later wish makes it another.
        attempts: how many claims of this wish there were, this one included.
        lease_token: fences every write.
        context: the file as it is, None when the source of record has it no more.
        traceparent: the trace that asked.
        is_large: whether it had more than ``LARGE_BYTES`` when it was asked for, or was set aside since.
    """

    file_id: int
    tenant_id: str
    name: str
    generation: int
    attempts: int
    lease_token: UUID
    context: FileContext | None
    traceparent: str | None = None
    is_large: bool = False

    @property
    def is_gone(self) -> bool:
        """Whether the source of record has the file no more."""
        return self.context is None


ALL_READERS = "*"


@dataclass(frozen=True, slots=True)
class Recipe:
    """By what files are processed. Those that were processed by something else are processed again.

    Attributes:
        chunk_size: the most characters of a chunk.
        chunk_overlap: the most characters that a chunk repeats of what is before it.
        readers: what reads each media type, and ``ALL_READERS`` what stands for all of it.
    """

    chunk_size: int
    chunk_overlap: int
    readers: Mapping[str, str]

    def of(self, media_type: str) -> Recipe:
        """The part of it that makes a file of that media type what it is; of ``ALL_READERS`` one that none can read."""
        return replace(self, readers={key: reader for key, reader in self.readers.items() if key == media_type})


@dataclass(frozen=True, slots=True)
class PageRecord:
    """What is kept of a page. The spans of ``layout`` count in the document's text."""

    number: int
    kind: PageKind
    layout: PageLayout | None


@dataclass(frozen=True, slots=True)
class FileResult:
    """How the reconcile of a file ended.

    ``descriptions`` are those of its distinct images by digest, in page order, made by ``describer``.
    """

    media_type: str
    page_count: int | None
    outcome: Outcome
    outcome_reason: str | None
    space_id: int
    declared_language: str | None = None
    pages: tuple[PageRecord, ...] = ()
    describer: str = ""
    descriptions: Mapping[str, ImageDescription] = field(default_factory=dict)
