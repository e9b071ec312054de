"""What a caller asks for, validated once, here. A criteria object that exists is valid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from services.chassis.kernel.errors import InvalidInputError
from services.chassis.kernel.text import sanitise
from services.search.domain.cursor import REACH, Cursor
from services.search.domain.limits import require_between
from services.search.domain.techniques import Techniques

QUERY_MAX_CHARACTERS = 2_000
TOP_N_DEFAULT = 10
TOP_N_MAX = REACH
CHUNKS_DEFAULT = 200
CHUNKS_MAX = 1_000
PAGE_MAX = 1_000_000
PAGE_RANGES_MAX = 100

FILTER_VALUES_MAX = 1_000

_IDENTIFIER_MAX = 2**63 - 1
_POSITION_MAX = 2**31 - 1
_PAGE_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
_WORD = r"[!#$%&'*+.^_`|~0-9a-z-]+"
_MEDIA_TYPE = re.compile(rf"(?=.{{3,255}}\Z){_WORD}/{_WORD}(?:[ \t]*;[\t -~]*)?")
_LANGUAGE = re.compile(r"[a-z]{2,3}", re.ASCII)


class SearchMode(StrEnum):
    """What a search goes by: the meaning, the words, or both."""

    SEMANTIC = "semantic"
    LEXICAL = "lexical"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class ChunkFilter:
    """Which chunks are looked at. An empty condition is none; conditions are all to be met.

    Attributes:
        file_ids: of one of these files, each named once.
        media_types: of a file of one of these media types, in whatever case.
        languages: in one of these languages, as tags like ``es``; ``und`` where it could not be told.
        created_from: of a file made at this moment or later.
        created_before: of a file made before this moment.

    Raises:
        InvalidInputError: ``INVALID_REQUEST``, with the parameter's wire name.
    """

    file_ids: tuple[int, ...] = ()
    media_types: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    created_from: datetime | None = None
    created_before: datetime | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "media_types", tuple(media_type.lower() for media_type in self.media_types))
        for name, wire in (("file_ids", "fileIds"), ("media_types", "mediaTypes"), ("languages", "languages")):
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))
            require_between(f"the number of {wire}", len(getattr(self, name)), 0, FILTER_VALUES_MAX, where=wire)
        for file_id in self.file_ids:
            require_between("fileIds", file_id, 1, _IDENTIFIER_MAX)
        _require_form(
            _MEDIA_TYPE, "media type", self.media_types, where="mediaTypes", remedy="write types like application/pdf"
        )
        _require_languages(self.languages)
        _require_moments(createdFrom=self.created_from, createdBefore=self.created_before)

    @property
    def of_files(self) -> bool:
        """Whether there is a condition on files."""
        return bool(self.file_ids or self.media_types or self.created_from or self.created_before)

    def __bool__(self) -> bool:
        return self.of_files or bool(self.languages)


@dataclass(frozen=True, slots=True)
class ResourceFilter:
    """Which resources are looked at, besides their types. An empty condition is none; conditions are all to be met.

    Attributes:
        entity_ids: with one of these ids, each named once.
        languages: whose text is in one of these languages, as for ``ChunkFilter``.
        updated_from: whose vector was written at this moment or later.
        updated_before: whose vector was written before this moment.

    Raises:
        InvalidInputError: ``INVALID_REQUEST``, with the parameter's wire name.
    """

    entity_ids: tuple[int, ...] = ()
    languages: tuple[str, ...] = ()
    updated_from: datetime | None = None
    updated_before: datetime | None = None

    def __post_init__(self) -> None:
        for name, wire in (("entity_ids", "entityIds"), ("languages", "languages")):
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))
            require_between(f"the number of {wire}", len(getattr(self, name)), 0, FILTER_VALUES_MAX, where=wire)
        for entity_id in self.entity_ids:
            require_between("entityIds", entity_id, 1, _IDENTIFIER_MAX)
        _require_languages(self.languages)
        _require_moments(updatedFrom=self.updated_from, updatedBefore=self.updated_before)

    def __bool__(self) -> bool:
        return bool(self.entity_ids or self.languages or self.updated_from or self.updated_before)


@dataclass(frozen=True, slots=True)
class FileChunkSearchCriteria:
    """The passages that mean nearly the same as a text, or share its words.

    Attributes:
        query_text: 1 to 2,000 characters; kept without control characters and surrounding white space.
        top_n: 1 to 1,000; the most results to return.
        min_score: -1 to 1, compared with the cosine score only. 0 is a threshold, None is none.
        file_id: look into this file only; short for a filter with one file.
        mode: what to go by, None for what the service is set to.
        filter: which chunks to look at.
        exact: compare every vector that passes the filter, however many, instead of walking the index.
        techniques: what a language model is to do with the question.
        after: where the answer before ended, None to begin; not with techniques, whose answers differ each time.

    Raises:
        InvalidInputError: ``INVALID_QUERY``, ``QUERY_TOO_LONG`` or ``INVALID_REQUEST``, with the parameter's wire name.
    """

    query_text: str
    top_n: int = TOP_N_DEFAULT
    min_score: float | None = None
    file_id: int | None = None
    mode: SearchMode | None = None
    filter: ChunkFilter = field(default_factory=ChunkFilter)
    exact: bool = False
    techniques: Techniques = field(default_factory=Techniques)
    after: Cursor | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "query_text", _query_text(self.query_text))
        _require_limits(self.top_n, self.min_score, self.mode)
        _require_steady(self.after, self.techniques)
        if self.exact and self.mode is SearchMode.LEXICAL:
            raise InvalidInputError(
                "INVALID_REQUEST",
                "exact is about vectors, and a lexical search compares none",
                where="exact",
                remedy="leave it out, or choose another mode",
            )
        if self.file_id is not None:
            require_between("fileId", self.file_id, 1, _IDENTIFIER_MAX)
            if self.filter.file_ids not in ((), (self.file_id,)):
                raise InvalidInputError(
                    "INVALID_REQUEST", "fileId and fileIds are given both", where="fileId", remedy="give one of them"
                )
            object.__setattr__(self, "filter", replace(self.filter, file_ids=(self.file_id,)))


@dataclass(frozen=True, slots=True)
class ResourceSearchCriteria:
    """The resources that mean nearly the same as a text, or share its words.

    Attributes:
        query_text: 1 to 2,000 characters; kept without control characters and surrounding white space.
        entity_types: look among these types only, each named once; empty for all.
        top_n: 1 to 1,000; the most results to return.
        min_score: -1 to 1, compared with the cosine score only. 0 is a threshold, None is none.
        mode: what to go by, None for what the service is set to.
        techniques: what a language model is to do with the question.
        after: where the answer before ended, None to begin; not with techniques, whose answers differ each time.
        filter: which resources of these types to look at.

    Raises:
        InvalidInputError: ``INVALID_QUERY``, ``QUERY_TOO_LONG`` or ``INVALID_REQUEST``, with the parameter's wire name.
    """

    query_text: str
    entity_types: tuple[str, ...] = ()
    top_n: int = TOP_N_DEFAULT
    min_score: float | None = None
    mode: SearchMode | None = None
    techniques: Techniques = field(default_factory=Techniques)
    after: Cursor | None = None
    filter: ResourceFilter = field(default_factory=ResourceFilter)

    def __post_init__(self) -> None:
        object.__setattr__(self, "query_text", _query_text(self.query_text))
        object.__setattr__(self, "entity_types", tuple(dict.fromkeys(self.entity_types)))
        if self.filter.entity_ids and len(self.entity_types) != 1:
            raise InvalidInputError(
                "INVALID_REQUEST",
                "entityIds are of one type, and several are asked for",
                where="entityIds",
                remedy="name one type in entityTypes",
            )
        _require_limits(self.top_n, self.min_score, self.mode)
        _require_steady(self.after, self.techniques)


@dataclass(frozen=True, slots=True)
class ResourceKey:
    """One resource: its type and its id. Raises InvalidInputError ``INVALID_REQUEST`` for an id out of range."""

    entity_type: str
    entity_id: int

    def __post_init__(self) -> None:
        require_between("id", self.entity_id, 1, _IDENTIFIER_MAX)


@dataclass(frozen=True, slots=True)
class PageRanges:
    """Pages of a document: ascending, disjoint, 1-based ranges, both ends included.

    ``bool(ranges)`` is always true: there is no empty selection.
    """

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, expression: str) -> PageRanges:
        """Read ``2``, ``2-5`` or ``1,3-4``. Ranges that touch or overlap become one.

        Raises:
            InvalidInputError: ``INVALID_PAGES`` for anything else: nothing, page 0, a range that runs backwards,
                a page above 1,000,000, or more than 100 ranges.
        """
        parts = expression.split(",", PAGE_RANGES_MAX)
        if len(parts) > PAGE_RANGES_MAX:
            raise _invalid_pages(f"more than {PAGE_RANGES_MAX} ranges")
        merged: list[tuple[int, int]] = []
        for first, last in sorted(map(_page_range, parts)):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], last))
            else:
                merged.append((first, last))
        return cls(tuple(merged))

    def __contains__(self, page: int) -> bool:
        return any(first <= page <= last for first, last in self.ranges)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.ranges)

    def __str__(self) -> str:
        return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in self.ranges)


@dataclass(frozen=True, slots=True)
class FileChunksCriteria:
    """The chunks of one file in the order of its text.

    Attributes:
        file_id: whose chunks.
        pages: only chunks that stand, at least in part, on these pages; None for all.
        limit: 1 to 1,000; the most chunks to return at once.
        after: the position after which to go on; None to begin.

    Raises:
        InvalidInputError: ``INVALID_REQUEST``, with the parameter's wire name.
    """

    file_id: int
    pages: PageRanges | None = None
    limit: int = CHUNKS_DEFAULT
    after: int | None = None

    def __post_init__(self) -> None:
        require_between("fileId", self.file_id, 1, _IDENTIFIER_MAX)
        require_between("limit", self.limit, 1, CHUNKS_MAX)
        if self.after is not None:
            require_between("after", self.after, 0, _POSITION_MAX)


def _query_text(given: str) -> str:
    text = sanitise(given).strip()
    if not text:
        raise InvalidInputError("INVALID_QUERY", "the query has no text", where="query", remedy="say what to look for")
    if len(text) > QUERY_MAX_CHARACTERS:
        raise InvalidInputError(
            "QUERY_TOO_LONG",
            f"the query has {len(text)} characters; the most is {QUERY_MAX_CHARACTERS}",
            where="query",
            remedy="ask in fewer words",
        )
    return text


def _require_languages(languages: tuple[str, ...]) -> None:
    _require_form(
        _LANGUAGE,
        "language tag",
        languages,
        where="languages",
        remedy="write languages like es or en, and und for those that could not be told",
    )


def _require_form(form: re.Pattern[str], what: str, given: tuple[str, ...], *, where: str, remedy: str) -> None:
    for one in given:
        if form.fullmatch(one) is None:
            raise InvalidInputError("INVALID_REQUEST", f"{one[:40]!r} is no {what}", where=where, remedy=remedy)


def _require_moments(**moments: datetime | None) -> None:
    for wire, moment in moments.items():
        if moment is None:
            continue
        if moment.utcoffset() is None:
            raise InvalidInputError(
                "INVALID_REQUEST", f"{wire} has no time zone", where=wire, remedy="end it with Z or an offset"
            )
        try:
            moment.astimezone(UTC)
        except OverflowError as error:
            raise InvalidInputError(
                "INVALID_REQUEST", f"{wire} is in no year of 1 to 9999 in UTC", where=wire, remedy="leave it out"
            ) from error


def _require_limits(top_n: int, min_score: float | None, mode: SearchMode | None) -> None:
    require_between("topN", top_n, 1, TOP_N_MAX)
    if min_score is not None:
        require_between("minScore", min_score, -1, 1)
        if mode is SearchMode.LEXICAL:
            raise InvalidInputError(
                "INVALID_REQUEST",
                "minScore is a cosine, and a lexical search computes none",
                where="minScore",
                remedy="leave it out, or choose another mode",
            )


def _require_steady(after: Cursor | None, techniques: Techniques) -> None:
    if after is not None and techniques:
        raise InvalidInputError(
            "INVALID_REQUEST",
            "what a language model makes of a question differs each time, so that no page can go on from another",
            where="after",
            remedy="leave it out and raise topN, or leave the techniques out",
        )


def _page_range(part: str) -> tuple[int, int]:
    match = _PAGE_RANGE.fullmatch(part.strip())
    if match is None:
        raise _invalid_pages(f"{part[:40]!r} is neither a page nor a range")
    first = int(match[1])
    last = int(match[2] or first)
    if first < 1 or last > PAGE_MAX:
        raise _invalid_pages(f"pages count from 1 to {PAGE_MAX}")
    if first > last:
        raise _invalid_pages(f"the range {first}-{last} runs backwards")
    return first, last


def _invalid_pages(problem: str) -> InvalidInputError:
    return InvalidInputError("INVALID_PAGES", problem, where="pages", remedy="write pages like 2, 2-5 or 1,3-4")
