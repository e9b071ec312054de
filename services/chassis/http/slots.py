"""A bound on how many requests of a kind are at work at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry import metrics

from services.chassis.kernel.errors import UnavailableError

_taken = metrics.get_meter("cauce").create_up_down_counter(
    "cauce.http.slots", unit="{slot}", description="Uploads, streams, batches and the like under way"
)


class Slots:
    """Places for so many at once; who comes later is refused, not queued."""

    def __init__(self, what: str, limit: int) -> None:
        self._what = what
        self._free = limit

    @contextmanager
    def take(self, make_room: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Hold a place. Raises UnavailableError ``TOO_MANY_REQUESTS`` when none is free.

        ``make_room`` says whether somebody gives up his place just now, and may end that in his own time.
        """
        if self._free <= 0 and not make_room():
            raise UnavailableError("TOO_MANY_REQUESTS", f"too many {self._what} at once", remedy="try again soon")
        self._free -= 1
        _taken.add(1, {"what": self._what})
        try:
            yield
        finally:
            self._free += 1
            _taken.add(-1, {"what": self._what})
