"""Result lists that were found before, each for as long as the index of its tenant has the same version.

The version is read from the database at every search, so a list is never older than the last change that was committed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Generic, TypeVar

import asyncpg

from services.chassis.kernel.scope import AccessScope
from services.chassis.postgres.queries import load_query
from services.search.application.ports import Question
from services.search.domain.fusion import Fusion
from services.search.domain.results import FoundFileChunks, FoundResources, LegStatus
from services.search.domain.words import codes_apart, with_plain_dashes

CHARACTERS_DEFAULT = 20_000_000

_MATCH_CHARACTERS = 500  # what a match takes besides its text

Found = TypeVar("Found", FoundFileChunks, FoundResources)


async def read_version(
    connection: asyncpg.Connection, scope: AccessScope, question: Question, timeout_seconds: float
) -> tuple[int, Mapping[str, object]]:
    """The version of the index of the scope's tenant, and what the statements bind for the question's words."""
    text = None if question.text is None else with_plain_dashes(question.text)
    row = await connection.fetchrow(
        load_query("services.search", "version_and_words"),
        scope.tenant_id,
        text,
        question.space_id,
        codes_apart(text or ""),
        timeout=timeout_seconds,
    )
    words = dict(row)
    return words.pop("version"), words


def list_key(scope: AccessScope, question: Question, criteria: object, fusion: Fusion) -> bytes:
    """What two searches with the same list have in common, besides the version; as short for any filter and history."""
    vector = None if question.vector is None else sha256(question.vector.tobytes()).digest()
    return sha256(repr((scope, question.space_id, vector, question.text, criteria, fusion)).encode()).digest()


class ResultLists(Generic[Found]):
    """The lists asked for latest, as many as have no more than ``characters`` of text together; none when it is 0."""

    def __init__(self, characters: int) -> None:
        self._most = characters
        self._characters = 0
        self._lists: OrderedDict[bytes, tuple[int, Found, int]] = OrderedDict()

    def find(self, key: bytes, version: int) -> Found | None:
        """The list, None when it is unknown or of another version."""
        known = self._lists.get(key)
        if known is None:
            return None
        if known[0] != version:
            self._drop(key)
            return None
        self._lists.move_to_end(key)
        return known[1]

    def keep(self, key: bytes, version: int, found: Found, texts: int) -> None:
        """Remember a list of ``texts`` characters, read when the version was this one or later.

        One whose leg failed is not kept: the next search may fare better.
        """
        characters = texts + _MATCH_CHARACTERS * (len(found.matches) + 1)
        legs = (found.legs.semantic, found.legs.lexical)
        if characters > self._most or any(leg is not None and leg.status is not LegStatus.RAN for leg in legs):
            return
        if key in self._lists:
            self._drop(key)
        self._lists[key] = (version, found, characters)
        self._characters += characters
        while self._characters > self._most:
            self._drop(next(iter(self._lists)))

    def _drop(self, key: bytes) -> None:
        self._characters -= self._lists.pop(key)[2]
