"""The port to the topic of dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from services.embeddings.domain.dead_letter import DeadLetter, Place, Replay


class DeadLetters(Protocol):
    """What was set aside. Reading takes nothing away, and no call reads without end."""

    async def read(self, limit: int, after: Place | None) -> Sequence[DeadLetter]:
        """Up to ``limit`` of them behind ``after``, in order of their place; fewer only at the end.

        Raises:
            UnavailableError: ``BROKER_UNAVAILABLE``.
        """

    async def find(self, place: Place) -> DeadLetter | None:
        """The one at this place. Raises UnavailableError ``BROKER_UNAVAILABLE``."""

    async def replay(self, letter: DeadLetter) -> Replay:
        """Publish the record where it came from, as it came, and look for a while what becomes of it.

        Raises:
            ConflictError: ``NOT_REPLAYABLE``: it came from nowhere that is consumed here.
            UnavailableError: ``BROKER_UNAVAILABLE``; it may have been published.
        """
