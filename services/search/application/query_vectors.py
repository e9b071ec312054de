"""Query vectors that were computed before are not computed again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from hashlib import sha256
from typing import TypeAlias

from services.chassis.kernel.errors import UnavailableError
from services.chassis.kernel.scope import AccessScope
from services.chassis.models.space import EmbeddingSpace, Vector
from services.search.application.ports import QueryEmbedder, StoredQueryVectors

Key: TypeAlias = tuple[AccessScope, str, bytes]
"""Who asks, the space's recipe, and the hash of a text. Nobody learns from an answer what others asked."""


_STORING_MAX = 100
_STORING_SECONDS = 0.5
_UNDER_WAY_MAX = 256
"""Questions whose vector is being made: they outlive the callers who gave up, so they need a bound of their own."""


class QueryVectors:
    """The vectors of the latest questions, at most ``capacity`` of them in memory and others in a store.

    A key holds the text's hash: long questions take no more room than short ones, and no text is kept.
    """

    def __init__(self, stored: StoredQueryVectors, *, capacity: int, timeout_seconds: float) -> None:
        self._stored = stored
        self._capacity = capacity
        self._timeout = timeout_seconds
        self._vectors: OrderedDict[Key, Vector] = OrderedDict()
        self._under_way: dict[Key, asyncio.Future[tuple[Vector, bool]]] = {}
        self._storing: set[asyncio.Task[None]] = set()

    async def embed(self, scope: AccessScope, embedder: QueryEmbedder, text: str) -> tuple[Vector, bool]:
        """The vector of the text, and whether it was known.

        Raises:
            UnavailableError: ``EMBEDDER_UNAVAILABLE``, from the embedder or when it takes too long;
                ``TOO_MANY_REQUESTS`` when too many are waited for already.
        """
        key = (scope, _recipe(embedder.space), sha256(text.encode()).digest())
        vector = self._vectors.get(key)
        if vector is not None:
            self._vectors.move_to_end(key)
            return vector, True
        under_way = self._under_way.get(key)
        if under_way is None:
            if len(self._under_way) >= _UNDER_WAY_MAX:
                raise UnavailableError(
                    "TOO_MANY_REQUESTS", "too many questions wait for their vector", remedy="try again soon"
                )
            under_way = asyncio.ensure_future(self._find_or_embed(key, embedder, text))
            self._under_way[key] = under_way
            under_way.add_done_callback(lambda done: self._finish(key, done))
        try:
            async with asyncio.timeout(self._timeout):
                # Shielded: a question that takes too long for this caller is known when it is asked again.
                return await asyncio.shield(under_way)
        except TimeoutError as error:
            raise self._too_slow() from error

    async def embed_passage(self, embedder: QueryEmbedder, text: str) -> Vector:
        """The vector of a passage that nobody will ask for again. Raises as ``embed`` does."""
        try:
            async with asyncio.timeout(self._timeout):
                return await embedder.embed_passage(text)
        except TimeoutError as error:
            raise self._too_slow() from error

    def _too_slow(self) -> UnavailableError:
        return UnavailableError(
            "EMBEDDER_UNAVAILABLE", f"no vector could be had within {self._timeout:g} seconds", remedy="try again"
        )

    async def aclose(self) -> None:
        """Wait a moment for what was computed to be stored."""
        if self._storing:
            await asyncio.wait(self._storing, timeout=_STORING_SECONDS)

    async def _find_or_embed(self, key: Key, embedder: QueryEmbedder, text: str) -> tuple[Vector, bool]:
        vector = await self._stored.find(*key)
        known = vector is not None
        if vector is None:
            vector = await embedder.embed_query(text)
            self._store(key, vector)
        self._vectors[key] = vector
        if len(self._vectors) > self._capacity:
            self._vectors.popitem(last=False)
        return vector, known

    def _store(self, key: Key, vector: Vector) -> None:
        """Beside the answer, which does not wait for it."""
        if len(self._storing) < _STORING_MAX:
            storing = asyncio.create_task(self._stored.store(*key, vector))
            self._storing.add(storing)
            storing.add_done_callback(self._storing.discard)

    def _finish(self, key: Key, done: asyncio.Future[tuple[Vector, bool]]) -> None:
        self._under_way.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever still waits is told; when nobody does, it is no news


def _recipe(space: EmbeddingSpace) -> str:
    """All that two vectors must have in common to be compared."""
    return f"{space.name} {space.provider} {space.model} {space.native_dimensions} {space.convention}"
