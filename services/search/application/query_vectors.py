"""Query vectors that were computed before are not computed again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from hashlib import sha256

from services.chassis.kernel.errors import UnavailableError
from services.chassis.models.space import Vector
from services.search.application.ports import QueryEmbedder


class QueryVectors:
    """The vectors of the latest questions, at most ``capacity`` of them, by embedding space and text.

    A key holds the text's hash, so that long questions take no more memory than short ones.
    """

    def __init__(self, *, capacity: int, timeout_seconds: float) -> None:
        self._capacity = capacity
        self._timeout = timeout_seconds
        self._vectors: OrderedDict[tuple[str, bytes], Vector] = OrderedDict()

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
        try:
            async with asyncio.timeout(self._timeout):
                vector = await embedder.embed_query(text)
        except TimeoutError as error:
            raise UnavailableError(
                "EMBEDDER_UNAVAILABLE",
                f"the query could not be embedded within {self._timeout:g} seconds",
                remedy="try again",
            ) from error
        self._vectors[key] = vector
        if len(self._vectors) > self._capacity:
            self._vectors.popitem(last=False)
        return vector, False
