"""What a caller asks for, validated once, here. A criteria object that exists is valid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from services.chassis.kernel.errors import InvalidInputError
from services.chassis.kernel.text import sanitise

QUERY_MAX_CHARACTERS = 2_000
TOP_N_DEFAULT = 10
TOP_N_MAX = 1_000
CHUNKS_DEFAULT = 200
CHUNKS_MAX = 1_000
PAGE_MAX = 1_000_000
PAGE_RANGES_MAX = 100

_IDENTIFIER_MAX = 2**63 - 1
_POSITION_MAX = 2**31 - 1
_PAGE_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class FileChunkSearchCriteria:
    """The passages that mean nearly the same as a text.

    Attributes:
        query_text: 1 to 2,000 characters; kept without control characters and surrounding white space.
        top_n: 1 to 1,000; the most results to return.
        min_score: -1 to 1, compared with the cosine score only. 0 is a threshold, None is none.
        file_id: look into this file only.

    Raises:
        InvalidInputError: ``INVALID_QUERY``, ``QUERY_TOO_LONG`` or ``INVALID_REQUEST``, with the parameter's wire name.
    """

    query_text: str
    top_n: int = TOP_N_DEFAULT
    min_score: float | None = None
    file_id: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "query_text", _query_text(self.query_text))
        _require_limits(self.top_n, self.min_score)
        if self.file_id is not None:
            _require_between("fileId", self.file_id, 1, _IDENTIFIER_MAX)


@dataclass(frozen=True, slots=True)
class ResourceSearchCriteria:
    """The resources that mean nearly the same as a text.

    Attributes:
        query_text: 1 to 2,000 characters; kept without control characters and surrounding white space.
        entity_types: look among these types only, each named once; empty for all.
        top_n: 1 to 1,000; the most results to return.
        min_score: -1 to 1, compared with the cosine score only. 0 is a threshold, None is none.

    Raises:
        InvalidInputError: ``INVALID_QUERY``, ``QUERY_TOO_LONG`` or ``INVALID_REQUEST``, with the parameter's wire name.
    """

    query_text: str
    entity_types: tuple[str, ...] = ()
    top_n: int = TOP_N_DEFAULT
    min_score: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "query_text", _query_text(self.query_text))
        object.__setattr__(self, "entity_types", tuple(dict.fromkeys(self.entity_types)))
        _require_limits(self.top_n, self.min_score)


@dataclass(frozen=True, slots=True)
class ResourceKey:
    """One resource: its type and its id. Raises InvalidInputError ``INVALID_REQUEST`` for an id out of range."""

    entity_type: str
    entity_id: int

    def __post_init__(self) -> None:
        _require_between("id", self.entity_id, 1, _IDENTIFIER_MAX)


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
        _require_between("fileId", self.file_id, 1, _IDENTIFIER_MAX)
        _require_between("limit", self.limit, 1, CHUNKS_MAX)
        if self.after is not None:
            _require_between("after", self.after, 0, _POSITION_MAX)


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


def _require_limits(top_n: int, min_score: float | None) -> None:
    _require_between("topN", top_n, 1, TOP_N_MAX)
    if min_score is not None:
        _require_between("minScore", min_score, -1, 1)


def _require_between(name: str, value: float, least: int, most: int) -> None:
    # Written so that a NaN, which compares with nothing, is refused.
    if not least <= value <= most:
        raise InvalidInputError(
            "INVALID_REQUEST",
            f"{name} is {value}; it must lie between {least} and {most}",
            where=name,
            remedy=f"give a value from {least} to {most}",
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
