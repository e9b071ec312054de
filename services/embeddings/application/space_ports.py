"""The ports for building a second embedding space beside the active one, and for changing to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol
from uuid import UUID

from services.chassis.models.space import EmbeddingSpace, Vector

FILES = "file"
"""What the texts of files are called where others are called by their type of resource."""


@dataclass(frozen=True, slots=True)
class UnmadeText:
    """A stored text that has no vector in the space that is built. ``row_id`` is its row in the active space."""

    row_id: int
    text: str
    text_hash: bytes


@dataclass(frozen=True, slots=True)
class UnmadeBatch:
    """Texts of one kind (``file``, or a type of resource) under one lease, and the space that they want a vector in."""

    kind: str
    space_id: int
    space: EmbeddingSpace
    token: UUID
    texts: tuple[UnmadeText, ...]


class SpaceBuild(Protocol):
    """The space that is built beside the active one, as a work queue of what it lacks."""

    async def claim(self) -> UnmadeBatch | None:
        """Take some texts under a lease; None where no space is built, nothing is missing or the rate is used up."""

    async def renew(self, batch: UnmadeBatch) -> None:
        """Extend the lease."""

    async def store(self, batch: UnmadeBatch, vectors: Sequence[tuple[UnmadeText, Vector]]) -> None:
        """Put vectors beside those of the active space, where the texts are still what they were.

        What got none is left alone until the lease runs out.
        """

    async def release(self, batch: UnmadeBatch) -> None:
        """Give all of the batch back at once."""

    async def note_fault(self, batch: UnmadeBatch, fault: str | None) -> None:
        """Show why the building does not get on, or with None that it does."""


@dataclass(frozen=True, slots=True)
class SpaceProgress:
    """A space that has vectors.

    Attributes:
        state: ACTIVE is searched; BUILDING is built beside it, and kept up to date once it is whole.
        texts: how many texts the active space has.
        missing: how many of them have no vector in this space.
        texts_per_minute: the bound of its building; None without one, 0 while it rests.
        fault: why its building did not get on the last time.
        begun_at: when its building began.
        activated_at: when it was made active last; only a space that was can be gone back to.
    """

    space: EmbeddingSpace
    state: Literal["ACTIVE", "BUILDING"]
    texts: int
    missing: int
    texts_per_minute: int | None
    fault: str | None
    begun_at: datetime | None
    activated_at: datetime | None


class Spaces(Protocol):
    """The embedding spaces that there are."""

    async def list_spaces(self) -> list[SpaceProgress]:
        """The active one, and the one beside it if there is one."""

    async def begin(self, space: EmbeddingSpace, texts_per_minute: int | None) -> None:
        """Have the space built beside the active one, or go on with it, at that rate.

        Raises:
            ConflictError: ``SPACE_ACTIVE``, ``SPACE_BUILDING`` (another one is there), ``NO_ACTIVE_SPACE``.
        """

    async def swap(self, *, back: bool) -> None:
        """Make the other space the active one, in one short transaction, and keep this one beside it.

        Raises:
            ConflictError: ``NO_SECOND_SPACE``, ``SPACE_INCOMPLETE``; with ``back`` also ``NOT_ACTIVE_BEFORE``.
            UnavailableError: ``SPACE_BUSY``, others did not let go of the tables in time.
        """

    async def drop(self) -> None:
        """Give up the space beside the active one: nothing is searched, built or gone back to in it any more.

        Raises:
            ConflictError: ``NO_SECOND_SPACE``.
            UnavailableError: ``SPACE_BUSY``.
        """

    async def remove_dropped(self) -> int:
        """Remove the vectors of spaces that were dropped. Return how many there were."""
