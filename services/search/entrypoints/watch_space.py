"""Follows the active embedding space while the service runs: one that appears later, and a swap to another."""

from __future__ import annotations

import asyncio

from services.chassis.observability import get_logger
from services.search.application.active_space import ActiveSpace

_log = get_logger(__name__)


def report_lexical(active_space: ActiveSpace, known: bool | None) -> None:
    """Log whether words can be searched, where that is not ``known``."""
    lexical = active_space.lexical
    if lexical == known or lexical is None:
        return
    if lexical:
        _log.info("lexical_available")
    else:
        _log.warning(
            "lexical_unavailable",
            effect="hybrid searches are semantic only, and say so",
            remedy="install and preload pg_textsearch and migrate; after a restart of the database it takes a moment",
        )


async def watch_space(active_space: ActiveSpace, *, poll_seconds: float) -> None:
    """Refresh until cancelled. A fault stays visible in the readiness and in the log, and is tried again."""
    while True:
        await asyncio.sleep(poll_seconds)
        known = active_space.lexical
        try:
            await active_space.refresh()
            report_lexical(active_space, known)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the space is asked for again
            _log.warning("space_not_read", error=f"{type(error).__name__}: {error}")
