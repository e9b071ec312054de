"""What has to be done before a process can work is done as soon as the database is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from services.chassis.observability.logs import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY

RETRY_SECONDS = 1.0

T = TypeVar("T")

_log = get_logger(__name__)


async def once_database_answers(action: Callable[[], Awaitable[T]]) -> T:
    """What the action returns, tried again for as long as the database is away. Any other fault comes out at once."""
    while True:
        try:
            return await action()
        except DATABASE_AWAY as error:
            _log.warning("waiting_for_database", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(RETRY_SECONDS)
