"""Follows the active embedding space while the service runs: one that appears later, and a swap to another."""

from __future__ import annotations

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


async def refresh_space(active_space: ActiveSpace) -> None:
    """Ask for the space again, and say what changed. A fault stays visible in the readiness."""
    known = active_space.lexical
    await active_space.refresh()
    report_lexical(active_space, known)
