"""One limit for all calls of a process to a model: how many at once, and none while the provider asks to wait."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from weakref import WeakKeyDictionary


class CallLimiter:
    """Slots for the calls under way, and a pause that holds for all of them."""

    def __init__(self, concurrency: int) -> None:
        self._slots = asyncio.Semaphore(concurrency)
        self._resume_at = 0.0

    def slot(self) -> AbstractAsyncContextManager[None]:
        """Hold one of the slots; wait for one while all are taken."""
        return self._slots

    def pause(self, seconds: float) -> None:
        """Let no call start before ``seconds`` from now have passed."""
        self._resume_at = max(self._resume_at, asyncio.get_running_loop().time() + seconds)

    @property
    def paused_seconds(self) -> float:
        """How long the pause lasts, as far as is known."""
        return max(0.0, self._resume_at - asyncio.get_running_loop().time())

    async def resumed(self) -> None:
        """Return when there is no pause."""
        while (wait := self.paused_seconds) > 0:  # noqa: ASYNC110  another call may lengthen it meanwhile
            await asyncio.sleep(wait)


_limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, CallLimiter]] = WeakKeyDictionary()


def process_limiter(model: str, concurrency: int) -> CallLimiter:
    """The limiter of a model in this process (strictly: in its event loop), made by the first who asks.

    Providers count quota by model, so one model's pause does not stop another.
    """
    return _limiters.setdefault(asyncio.get_running_loop(), {}).setdefault(model, CallLimiter(concurrency))
