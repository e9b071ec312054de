"""What every embedder promises, whoever computes the vectors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest

from services.chassis.models.limiter import ProcessQuota
from services.chassis.models.registry import (
    KNOWN_SPACES,
    Embedder,
    ModelSettings,
    build_document_embedder,
    build_query_embedder,
)
from services.chassis.models.space import STORED_DIMENSIONS
from tests.support.gemini_server import API_KEY, GeminiServer

MOST_TEXTS = 8
PASSAGES = [
    "La presión máxima de la bomba P-101 es de 16 bar.",
    "Employees may carry over five days of annual leave.",
    "El filtro de aceite se cambia cada quinientas horas.",
]


@pytest.fixture
def gemini() -> Iterator[GeminiServer]:
    with GeminiServer() as server:
        yield server


@pytest.fixture
def settings(gemini: GeminiServer) -> ModelSettings:
    return ModelSettings(gemini_api_key=API_KEY, gemini_base_url=gemini.url, gemini_items_per_call=MOST_TEXTS)


@pytest.fixture(params=KNOWN_SPACES)
async def embedder(request: pytest.FixtureRequest, settings: ModelSettings) -> AsyncIterator[Embedder]:
    built = build_document_embedder(KNOWN_SPACES[request.param], settings, ProcessQuota(4))
    yield built
    await built.aclose()


async def embed(embedder: Embedder, texts: list[str]) -> np.ndarray:
    return np.stack([vector async for batch in embedder.embed_documents(texts) for vector in batch])


async def test_vectors_are_float32_of_768_numbers_and_unit_length(embedder: Embedder):
    for vector in [*await embed(embedder, PASSAGES), await embedder.embed_query("¿Qué presión?")]:
        assert vector.shape == (STORED_DIMENSIONS,)
        assert vector.dtype == np.float32
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
        assert not vector[embedder.space.native_dimensions :].any()


async def test_embedder_names_the_space_it_was_built_for(embedder: Embedder):
    assert KNOWN_SPACES[embedder.space.name] == embedder.space


async def test_one_vector_for_each_text_in_order_over_several_batches(embedder: Embedder):
    texts = [f"Apartado {number}" for number in range(MOST_TEXTS * 2 + 1)]
    sizes = [len(batch) async for batch in embedder.embed_documents(texts)]
    assert sizes == [MOST_TEXTS, MOST_TEXTS, 1]
    together = await embed(embedder, texts)
    assert len(together) == len(texts)
    for position in (0, MOST_TEXTS, len(texts) - 1):
        (alone,) = await embed(embedder, [texts[position]])
        assert together[position] == pytest.approx(alone, abs=1e-4)


async def test_question_is_nearest_to_the_passage_that_answers_it(embedder: Embedder):
    passages = await embed(embedder, PASSAGES)
    question = await embedder.embed_query("¿Cuál es la presión máxima de la bomba?")
    assert int(np.argmax(passages @ question)) == 0


async def test_question_and_passage_of_the_same_words_have_different_vectors(embedder: Embedder):
    (passage,) = await embed(embedder, PASSAGES[:1])
    question = await embedder.embed_query(PASSAGES[0])
    assert 0.5 < float(passage @ question) < 0.9999


async def test_a_passage_alone_has_the_vector_that_it_has_among_others(embedder: Embedder):
    (_, passage, _) = await embed(embedder, PASSAGES)
    assert await embedder.embed_passage(PASSAGES[1]) == pytest.approx(passage, abs=1e-4)


async def test_no_texts_give_no_batches(embedder: Embedder):
    assert [batch async for batch in embedder.embed_documents([])] == []


@pytest.mark.parametrize("bad", ["", " \n\t", "a\x00b", "a\udc80b"])
async def test_unembeddable_text_is_refused_before_anything_is_embedded(
    embedder: Embedder, gemini: GeminiServer, bad: str
):
    batches = embedder.embed_documents([*PASSAGES * MOST_TEXTS, bad])
    with pytest.raises(ValueError, match=r"blank|NUL|surrogates"):
        await anext(batches)
    with pytest.raises(ValueError, match=r"blank|NUL|surrogates"):
        await embedder.embed_query(bad)
    with pytest.raises(ValueError, match=r"blank|NUL|surrogates"):
        await embedder.embed_passage(bad)
    assert gemini.requests == []


async def test_callers_at_the_same_time_get_their_own_vectors(embedder: Embedder):
    apart = [await embedder.embed_query(text) for text in PASSAGES]
    together = await asyncio.gather(*(embedder.embed_query(text) for text in PASSAGES))
    assert np.stack(together) == pytest.approx(np.stack(apart), abs=1e-4)


async def test_embedder_goes_on_after_a_cancelled_call(embedder: Embedder):
    task = asyncio.create_task(embed(embedder, PASSAGES * MOST_TEXTS))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await embed(embedder, PASSAGES)) == len(PASSAGES)


async def test_query_embedder_works_in_the_space_that_the_database_recorded(settings: ModelSettings):
    for recorded in KNOWN_SPACES.values():
        built = build_query_embedder(recorded, settings)
        assert built.space == recorded
        await built.aclose()
