"""Query vectors that were computed before are not computed again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from hashlib import sha256
from typing import TypeAlias

from services.chassis.kernel.errors import UnavailableError
from services.chassis.models.space import Vector
from services.search.application.ports import QueryEmbedder

Key: TypeAlias = tuple[str, bytes]
"""The name of a space and the hash of a text."""


class QueryVectors:
    """The vectors of the latest questions, at most ``capacity`` of them, by embedding space and text.

    A key holds the text's hash, so that long questions take no more memory than short ones.
    """

    def __init__(self, *, capacity: int, timeout_seconds: float) -> None:
        self._capacity = capacity
        self._timeout = timeout_seconds
        self._vectors: OrderedDict[Key, Vector] = OrderedDict()
        self._under_way: dict[Key, asyncio.Future[Vector]] = {}

    async def embed(self, embedder: QueryEmbedder, text: str) -> tuple[Vector, bool]:
        """The vector of the text, and whether it was known.

        Raises:
            UnavailableError: ``EMBEDDER_UNAVAILABLE``, from the embedder or when it takes too long.
        """
        key = (embedder.space.name, sha256(text.encode()).digest())
        vector = self._vectors.get(key)
        if vector is not None:
            self._vectors.move_to_end(key)
            return vector, True
        under_way = self._under_way.get(key)
        if under_way is None:
            under_way = asyncio.ensure_future(self._embed(key, embedder, text))
            self._under_way[key] = under_way
            under_way.add_done_callback(lambda done: self._finish(key, done))
        try:
            async with asyncio.timeout(self._timeout):
                # Shielded: a question that takes too long for this caller is known when it is asked again.
                vector = await asyncio.shield(under_way)
        except TimeoutError as error:
            raise self._too_slow() from error
        return vector, False

    async def embed_passage(self, embedder: QueryEmbedder, text: str) -> Vector:
        """The vector of a passage that nobody will ask for again. Raises as ``embed`` does."""
        try:
            async with asyncio.timeout(self._timeout):
                (vector,) = [vector async for batch in embedder.embed_documents([text]) for vector in batch]
        except TimeoutError as error:
            raise self._too_slow() from error
        return vector

    def _too_slow(self) -> UnavailableError:
        return UnavailableError(
            "EMBEDDER_UNAVAILABLE", f"no vector could be had within {self._timeout:g} seconds", remedy="try again"
        )

    async def _embed(self, key: Key, embedder: QueryEmbedder, text: str) -> Vector:
        vector = await embedder.embed_query(text)
        self._vectors[key] = vector
        if len(self._vectors) > self._capacity:
            self._vectors.popitem(last=False)
        return vector

    def _finish(self, key: Key, done: asyncio.Future[Vector]) -> None:
        self._under_way.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever still waits is told; when nobody does, it is no news
