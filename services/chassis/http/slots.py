"""A bound on how many requests of a kind are at work at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from services.chassis.kernel.errors import UnavailableError


class Slots:
    """Places for so many at once; who comes later is refused, not queued."""

    def __init__(self, what: str, limit: int) -> None:
        self._what = what
        self._free = limit

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold a place. Raises UnavailableError ``TOO_MANY_REQUESTS`` when none is free."""
        if self._free == 0:
            raise UnavailableError("TOO_MANY_REQUESTS", f"too many {self._what} at once", remedy="try again soon")
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1
