"""Vectors for many texts at once, where one that the model refuses spoils no other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.chassis.kernel.errors import InvalidInputError
from services.chassis.models.space import STORED_DIMENSIONS, Vector, stored_vectors
from services.embeddings.application.ports import DocumentEmbedder
from services.embeddings.domain.resource_work import Failure


async def embed_texts(embedder: DocumentEmbedder, texts: Sequence[Sequence[str]]) -> list[Vector | Failure]:
    """The vector of each text, given in parts, or why the model refuses it; of several parts it is their mean."""
    answers = await _embed(embedder, list(dict.fromkeys(part for parts in texts for part in parts)))
    return [_join([answers[part] for part in parts]) for parts in texts]


async def _embed(embedder: DocumentEmbedder, parts: list[str]) -> dict[str, Vector | Failure]:
    if not parts:
        return {}
    try:
        vectors = [vector async for some in embedder.embed_documents(parts) for vector in some]
    except InvalidInputError as error:
        if len(parts) == 1:
            return {parts[0]: Failure(error.code, error.message)}
        middle = len(parts) // 2
        return await _embed(embedder, parts[:middle]) | await _embed(embedder, parts[middle:])
    return dict(zip(parts, vectors, strict=True))


def _join(answers: Sequence[Vector | Failure]) -> Vector | Failure:
    vectors: list[Vector] = []
    for answer in answers:
        if isinstance(answer, Failure):
            return answer
        vectors.append(answer)
    if len(vectors) == 1:
        return vectors[0]
    (vector,) = stored_vectors([np.mean(vectors, axis=0)], count=1, dimensions=STORED_DIMENSIONS)
    return vector
