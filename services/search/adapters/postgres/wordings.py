"""What texts say, by the database's rules for words: the same that searches go by."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from services.chassis.postgres.queries import load_query
from services.search.domain.words import Wording


class PostgresWordings:
    """Implements ``Wordings``."""

    def __init__(self, pool: asyncpg.Pool, *, timeout_seconds: float) -> None:
        self._pool = pool
        self._timeout = timeout_seconds

    async def read(self, texts: Sequence[str]) -> list[Wording]:
        """Each text with its words."""
        async with self._pool.acquire(timeout=self._timeout) as connection:
            rows = await connection.fetch(
                load_query("services.search", "words_that_say"), list(texts), timeout=self._timeout
            )
        words: list[dict[str, frozenset[str]]] = [{} for _ in texts]
        for row in rows:
            words[row["number"] - 1][row["word"]] = frozenset(row["forms"])
        return [Wording(text, some) for text, some in zip(texts, words, strict=True)]
