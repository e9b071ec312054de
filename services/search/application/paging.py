"""Pages of one ranking: each result once, in one order, at most 1,000.

How the legs are fused depends on how far they looked, so a ranking is built of reaches: all that the search for one
page finds, then what a search for 200 and one for 1,000 find besides. Each is the same however much of it is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from services.search.domain.cursor import REACH, Cursor, digest
from services.search.domain.results import FileChunkMatch, Legs, ResourceMatch, Total

_FURTHER = (200, REACH)

Match = TypeVar("Match", FileChunkMatch, ResourceMatch)
Match_co = TypeVar("Match_co", FileChunkMatch, ResourceMatch, covariant=True)


class Found(Protocol[Match_co]):
    """What ``FoundFileChunks`` and ``FoundResources`` have in common."""

    @property
    def matches(self) -> tuple[Match_co, ...]:
        """Best first."""

    @property
    def legs(self) -> Legs:
        """What they did."""

    @property
    def total(self) -> Total:
        """How many there are."""

    @property
    def cached(self) -> bool:
        """Whether all this was known."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Match]):
    """Some results, what the search that reached furthest did, and what to go on after, None when it is the last."""

    matches: tuple[Match, ...]
    legs: Legs
    total: Total
    cached: bool
    next: str | None


async def read_page(
    find: Callable[[int, int], Awaitable[Found[Match]]], size: int, after: Cursor | None, *, asked: bytes, space: bytes
) -> Page[Match]:
    """One page.

    Args:
        find: searches for some results, its first argument, and returns up to so many candidates, its second.
        size: the most results of a page.
        after: the page goes on from there.
        asked: the digest of the question and its criteria.
        space: the digest of the embedding space.

    Raises:
        InvalidInputError: ``CURSOR_MISMATCH``.
        ConflictError: ``CURSOR_EXPIRED``.
    """
    if after is not None:
        after.require(asked, space)
    offset = 0 if after is None else after.offset
    end = min(offset + size, REACH)
    found = await find(size, end)
    cached = found.cached
    ranking = {match.key: match for match in found.matches}
    for reach in _FURTHER:
        if offset == 0 or len(ranking) >= end:
            break
        if reach > size:
            found = await find(reach, end)
            cached = cached and found.cached
            for match in found.matches:
                ranking.setdefault(match.key, match)
    keys = list(ranking)[:end]
    if after is not None:
        after.require_given(keys[:offset])
    is_last = len(keys) < end or end == REACH or (found.total.exact and found.total.count <= end)
    return Page(
        tuple(ranking[key] for key in keys[offset:]),
        found.legs,
        found.total,
        cached,
        None if is_last else str(Cursor(end, asked, space, digest(*keys))),
    )
