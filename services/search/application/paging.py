"""Pages of one ranking, at most 1,000 results together: each the best that was not given yet, as the index is then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from services.chassis.kernel.errors import UnavailableError
from services.search.domain.cursor import REACH, Cursor, mark
from services.search.domain.results import FileChunkMatch, Legs, ResourceMatch, Total

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
    """Some results, what the search for them did, and what to go on after, None when they are the last."""

    matches: tuple[Match, ...]
    legs: Legs
    total: Total
    cached: bool
    next: str | None


async def read_page(
    find: Callable[[int], Awaitable[Found[Match]]],
    size: int,
    after: Cursor | None,
    *,
    asked: bytes,
    space: bytes,
    fault: str | None = None,
) -> Page[Match]:
    """One page.

    Args:
        find: searches for so many results.
        size: the most results of a page.
        after: the page goes on from there.
        asked: the digest of the question and its criteria.
        space: the digest of the embedding space.
        fault: why the meaning is not looked for at this search, though it is asked for: then there may always be more.

    Raises:
        InvalidInputError: ``CURSOR_MISMATCH``.
        ConflictError: ``CURSOR_EXPIRED``.
        UnavailableError: ``PAGE_UNAVAILABLE`` when words alone find no more, and the meaning may.
    """
    if after is not None:
        after.require(asked, space)
    given: tuple[bytes, ...] = () if after is None else after.given
    reach = min(len(given) + size, REACH)
    found = await find(reach)
    marked = {mark(*match.identity): match for match in found.matches}
    for one in given:
        marked.pop(one, None)
    page = tuple(marked.items())[: reach - len(given)]
    if after is not None and not page and fault is not None:
        raise UnavailableError(
            "PAGE_UNAVAILABLE",
            f"words find no more, and by its meaning nothing can be found now: {fault}",
            remedy="ask for the same page again later",
        )
    all_found = fault is None and (
        len(found.matches) < reach or (found.total.exact and found.total.count <= len(found.matches))
    )
    is_last = reach == REACH or (all_found and len(page) == len(marked))
    return Page(
        tuple(match for _, match in page),
        found.legs,
        found.total,
        found.cached,
        None if is_last else str(Cursor(asked, space, given + tuple(one for one, _ in page))),
    )
