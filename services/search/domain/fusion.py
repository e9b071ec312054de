"""How the two legs of a hybrid search become one order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FusionMethod(StrEnum):
    """How scores of two kinds are added up.

    CONVEX adds the cosine, spread over 0 to 1 among the candidates, and BM25 as a part of what a passage with every
    word of the question would have, so that few or common words count little. RANKS adds reciprocal ranks.
    """

    CONVEX = "convex"
    RANKS = "ranks"


@dataclass(frozen=True, slots=True)
class Fusion:
    """A method and its weights. What one leg did not find gets nothing from it, and no invented rank.

    Attributes:
        dense_weight: 0 to 1, the share of the meaning; the words have the rest.
        neighbour_weight: what the passages before and after count where a passage is shorter than
            ``neighbour_characters``: it leans on them for its context.
        rank_constant: of RANKS; 60 in Cormack, Clarke and Büttcher, SIGIR 2009.
    """

    method: FusionMethod = FusionMethod.CONVEX
    dense_weight: float = 0.45
    neighbour_weight: float = 0.25
    neighbour_characters: int = 500
    rank_constant: int = 60
