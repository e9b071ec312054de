"""Keeps the stored vectors of questions within their bounds while the service runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from services.chassis.observability import get_logger

PRUNE_SECONDS = 60.0

_log = get_logger(__name__)


async def prune_query_vectors(prune: Callable[[], Awaitable[None]], *, every_seconds: float = PRUNE_SECONDS) -> None:
    """Prune again and again until cancelled. A fault is logged and tried again."""
    while True:
        await asyncio.sleep(every_seconds)
        try:
            await prune()
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, it is pruned again
            _log.warning("query_vectors_not_pruned", error=f"{type(error).__name__}: {error}")
