"""What a search answers.

``score`` is always a cosine: 1 is the same direction, 0 unrelated, -1 opposite. It, the BM25 score, the ranks and the
fused score are of different kinds and never compared with one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from services.search.domain.criteria import SearchMode
from services.search.domain.fusion import Fusion
from services.search.domain.techniques import ExecutedQuery, TechniqueReport


class Strategy(StrEnum):
    """How a leg looked for its candidates.

    HNSW walks the approximate index of vectors; BM25 reads the index of words from the best match on, and leaves out
    what does not pass the filters; EXACT compares everything that passes the filters, so it misses nothing.
    """

    HNSW = "hnsw"
    BM25 = "bm25"
    EXACT = "exact"


class LegStatus(StrEnum):
    """RAN, FAILED at this very search, or UNAVAILABLE here for now."""

    RAN = "RAN"
    FAILED = "FAILED"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Leg:
    """What one half of a search did.

    Attributes:
        strategy: how it looked, None when it did not run.
        found: how many candidates it brought.
        complete: False when there may be more matches that pass the filters than were looked at.
        reason: why it did not run, or why it is not complete.
    """

    status: LegStatus
    strategy: Strategy | None = None
    found: int = 0
    complete: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Legs:
    """The two halves of a search; None for one that its mode does not ask for."""

    semantic: Leg | None = None
    lexical: Leg | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """How many match: pass the filter and the threshold and, where words alone decide, have one of the question's.

    Attributes:
        count: of them; when it is not exact, there are at least so many.
        exact: whether all that pass the filter were looked at.
        reason: why the count is not exact.
    """

    count: int
    exact: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FileChunkMatch:
    """A passage that was found.

    ``position`` is the 0-based order in the file; pages are 1-based and inclusive, None in a format without pages;
    the offsets refer to the file's extracted text.
    Ranks are 1-based, equal for equal scores, and None where a leg did not find it; ``score`` is computed all the same
    in a hybrid search. ``fused_score`` is of hybrid searches only, and 0 beyond what is fused, where the better rank
    decides.

    Attributes:
        queries_score: where several queries were executed, the sum of weighed reciprocal ranks in their lists, which
            the results are ordered by. What only another query than the first found has no rank and no fused score.
        rank_before_rerank: where a language model put the results in order, the 1-based place before.
    """

    file_id: int
    file_name: str
    chunk_id: int
    position: int
    page_from: int | None
    page_to: int | None
    char_start: int
    char_end: int
    score: float | None
    bm25_score: float | None
    dense_rank: int | None
    lexical_rank: int | None
    fused_score: float | None
    text: str
    queries_score: float | None = None
    rank_before_rerank: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        """What tells passages apart."""
        return ("chunk", self.chunk_id)

    @property
    def identity(self) -> tuple[int, int, str]:
        """What it is still told by when its file was read again, and its text stayed."""
        return (self.file_id, self.position, self.text)

    @property
    def passage(self) -> str:
        """What a reader judges it by."""
        return self.text


@dataclass(frozen=True, slots=True)
class FoundFileChunks:
    """Passages, best first, how many there are, what the legs did, and whether all this was known from before."""

    matches: tuple[FileChunkMatch, ...]
    legs: Legs
    total: Total
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Executed:
    """What was done.

    Attributes:
        mode: what was asked for; ``legs`` says what became of it.
        space: the embedding space.
        strategy: of the semantic leg, None when it did not run.
        query_vector_cached: whether the question's vector was known.
        cached: whether the results were known, and nothing has changed in the index since.
        fusion: how the legs were fused, None when there was one only.
        queries: the texts that were searched for. Scores, ranks and legs are of the first one.
        techniques: what became of each that was asked for.
    """

    mode: SearchMode
    space: str
    strategy: Strategy | None
    query_vector_cached: bool
    cached: bool
    legs: Legs
    fusion: Fusion | None
    queries: tuple[ExecutedQuery, ...]
    techniques: tuple[TechniqueReport, ...] = ()


@dataclass(frozen=True, slots=True)
class FileChunkSearchResult:
    """Passages, best first by what the mode goes by; equal ones in the order of ``chunk_id``.

    ``next`` is what to give as ``after`` to go on; None when these were the last, or the 1,000th is reached.
    """

    results: tuple[FileChunkMatch, ...]
    total: Total
    next: str | None
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
    """A resource that was found, with its vector's text. Ranks and scores are as in ``FileChunkMatch``."""

    entity_type: str
    entity_id: int
    name: str
    embedding_text: str
    score: float | None
    bm25_score: float | None
    dense_rank: int | None
    lexical_rank: int | None
    fused_score: float | None
    updated_at: datetime
    queries_score: float | None = None
    rank_before_rerank: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        """What tells resources apart."""
        return (self.entity_type, self.entity_id)

    @property
    def identity(self) -> tuple[str, int]:
        """What it is still told by when it was changed."""
        return self.key

    @property
    def passage(self) -> str:
        """What a reader judges it by."""
        return self.embedding_text


@dataclass(frozen=True, slots=True)
class FoundResources:
    """Resources, as ``FoundFileChunks``."""

    matches: tuple[ResourceMatch, ...]
    legs: Legs
    total: Total
    cached: bool = False


@dataclass(frozen=True, slots=True)
class ResourceSearchResult:
    """Resources, best first by what the mode goes by; equal ones in the order of type and id.

    ``next`` is as for files.
    """

    results: tuple[ResourceMatch, ...]
    total: Total
    next: str | None
    executed: Executed


@dataclass(frozen=True, slots=True)
class StoredResource:
    """What the index holds of a resource, and how its processing stands.

    Attributes:
        embedding_text: what its vector stands for; None, as all of the vector's, where it has none.
        text_hash: SHA-256 of the text, in hexadecimal.
        space: the name of the vector's embedding space.
        age_seconds: since the vector was written.
        status: PENDING, PROCESSING, COMPLETED or FAILED; the vector may be of an earlier state until it has ended.
        error_code: why it failed, or what it was given back to the queue for the last time.
        error_message: the same in words.
    """

    entity_type: str
    entity_id: int
    name: str
    embedding_text: str | None
    text_hash: str | None
    space: str | None
    updated_at: datetime | None
    age_seconds: float | None
    status: str
    error_code: str | None
    error_message: str | None
