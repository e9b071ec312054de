"""The lexical indexes, which some releases of their extension lose at a restart of the server, and their words."""

from __future__ import annotations

import asyncpg

from services.chassis.observability import get_logger
from services.chassis.postgres.queries import load_query

_RENEWED_AT_ONCE = 200
_FILES_RENEWED_AT_ONCE = 10

_log = get_logger(__name__)


async def build_lexical(pool: asyncpg.Pool) -> None:
    """Build the indexes if they cannot be relied on. Where that fails, searches say that they had no lexical leg."""
    try:
        if not await pool.fetchval(load_query("services.embeddings", "build_lexical")):
            _log.debug("lexical_unavailable", effect="searches are semantic only", remedy="install pg_textsearch")
    except (asyncpg.UndefinedFunctionError, asyncpg.InternalServerError) as error:
        _log.warning("lexical_not_built", error=f"{type(error).__name__}: {error}", effect="searches are semantic only")


async def renew_words(pool: asyncpg.Pool) -> None:
    """Make again what chunks are found by where earlier rules made it, a few at a time until none is left."""
    if renewed := await _renew(pool, "renew_words", _RENEWED_AT_ONCE):
        _log.info("words_renewed", chunks=renewed)


async def renew_languages(pool: asyncpg.Pool) -> None:
    """Tell again the languages of chunks that do not tell them, a few files at a time until none is left."""
    if renewed := await _renew(pool, "renew_languages", _FILES_RENEWED_AT_ONCE):
        _log.info("languages_renewed", files=renewed)


async def _renew(pool: asyncpg.Pool, query: str, at_once: int) -> int:
    renewed = 0
    while count := await pool.fetchval(load_query("services.embeddings", query), at_once):
        renewed += count
    return renewed
