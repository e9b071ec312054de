"""Work under a lease: renewed for as long as the work takes, abandoned when it is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

BACKOFF_BASE_SECONDS = 2.0
BACKOFF_CAP_SECONDS = 300.0


async def under_lease(
    work: Callable[[], Awaitable[None]], renew: Callable[[], Awaitable[None]], lease_seconds: float
) -> None:
    """Do the work while a second task renews the lease; losing the lease ends the work.

    Raises:
        LeaseLostError: as ``renew`` raised it. Whatever ``work`` raises comes out as well.
    """
    working = asyncio.ensure_future(work())
    renewal = asyncio.ensure_future(_renew(renew, lease_seconds / 3))
    try:
        await asyncio.wait([working, renewal], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            renewal.result()
        await working
    finally:
        for task in (working, renewal):
            task.cancel()
        await asyncio.gather(working, renewal, return_exceptions=True)


def backoff(attempts: int) -> float:
    """Exponential with full jitter, in seconds, so that what failed together does not come back together."""
    delay: float = min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2 ** (attempts - 1))
    return random.uniform(0.5, 1.0) * delay  # noqa: S311 - jitter needs no secrecy


async def _renew(renew: Callable[[], Awaitable[None]], seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await renew()
