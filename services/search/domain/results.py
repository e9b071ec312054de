"""What a search answers. Scores are cosines: 1 is the same direction, 0 unrelated, -1 opposite."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Strategy(StrEnum):
    """How the nearest vectors were looked for.

    HNSW walks the approximate index; EXACT compares every chunk that passes the filters, so it misses none.
    """

    HNSW = "hnsw"
    EXACT = "exact"


@dataclass(frozen=True, slots=True)
class FileChunkMatch:
    """A passage that was found.

    ``position`` is the 0-based order in the file; pages are 1-based and inclusive, None in a format without pages.
    """

    file_id: int
    file_name: str
    chunk_id: int
    position: int
    page_from: int | None
    page_to: int | None
    score: float
    text: str


@dataclass(frozen=True, slots=True)
class NearestFileChunks:
    """The passages nearest to a vector, best first, and how they were looked for."""

    matches: tuple[FileChunkMatch, ...]
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class Executed:
    """What was done: the mode, the embedding space, the strategy, and whether the question's vector was known."""

    mode: str
    space: str
    strategy: Strategy
    query_vector_cached: bool


@dataclass(frozen=True, slots=True)
class FileChunkSearchResult:
    """Passages, best first; equal scores in the order of ``chunk_id``."""

    results: tuple[FileChunkMatch, ...]
    executed: Executed


@dataclass(frozen=True, slots=True)
class FileChunk:
    """A chunk as it is stored; the offsets refer to the file's extracted text."""

    chunk_id: int
    position: int
    page_from: int | None
    page_to: int | None
    char_start: int
    char_end: int
    text: str


@dataclass(frozen=True, slots=True)
class FileChunks:
    """Some of a file's chunks in order.

    Attributes:
        pages: how many pages the file has, None where its format has none or it is not processed yet.
        next: the position to go on after, None when these were the last.
    """

    file_id: int
    file_name: str
    pages: int | None
    chunks: tuple[FileChunk, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class ResourceMatch:
    """A resource that was found, with the text that its vector stands for."""

    entity_type: str
    entity_id: int
    name: str
    embedding_text: str
    score: float
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class NearestResources:
    """The resources nearest to a vector, best first, and how they were looked for."""

    matches: tuple[ResourceMatch, ...]
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class ResourceSearchResult:
    """Resources, best first; equal scores in the order of type and id."""

    results: tuple[ResourceMatch, ...]
    executed: Executed


@dataclass(frozen=True, slots=True)
class StoredResource:
    """What the index holds of a resource.

    Attributes:
        text_hash: SHA-256 of the text, in hexadecimal.
        space: the name of the vector's embedding space.
        age_seconds: since the vector was written.
        status: of the resource's processing; the vector may be of an earlier state while it is not COMPLETED.
    """

    entity_type: str
    entity_id: int
    name: str
    embedding_text: str
    text_hash: str
    space: str
    updated_at: datetime
    age_seconds: float
    status: str
