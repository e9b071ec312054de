"""Work under a lease: renewed for as long as the work takes, abandoned when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


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


async def _renew(renew: Callable[[], Awaitable[None]], seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await renew()
