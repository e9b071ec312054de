"""How the two legs of a hybrid search become one order."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)

# With 60, what bad queries find at the end of their lists outvotes the first list's best (DECISIONS.md).
_LISTS_RANK_CONSTANT = 2

RARE_CODE_TEXTS = 3
"""The most texts that a code of the question may be in to bring them up before all others."""

_CODE_DIGITS = 2
_LETTER = r"[^\W\d_]"
_CODE = re.compile(rf"(?:{_LETTER}+\d|\d+{_LETTER}+\d+{_LETTER})\w*|\d{{7,}}(?<!000)")


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

    A text with a code of the question that no more than 3 have gets 1 more, unless the question has its parts apart and
    they are but some of those of another that a text has; and where there is one, so does a text that both legs have
    first: no code is held against it. What comes after the candidates of both legs that are fused has 0,
    in the order of the better of its ranks: so the order is the same however many results are wanted, as far as the
    legs' is.

    Attributes:
        dense_weight: 0 to 1, the share of the meaning; the words have the rest.
        neighbour_weight: what the passages before and after count where they and the passage are shorter than
            ``neighbour_characters``: it leans on them for its context.
        rank_constant: of RANKS; 60 in Cormack, Clarke and Büttcher, SIGIR 2009.
    """

    method: FusionMethod = FusionMethod.CONVEX
    dense_weight: float = 0.45
    neighbour_weight: float = 0.25
    neighbour_characters: int = 500
    rank_constant: int = 60


def is_code(form: str) -> bool:
    """Whether a form that is looked for is a code or a part number, by its shape.

    That is letters with two digits or more after or among them, or a number of seven digits that is not round.
    Ordinals, decades, hours and other quantities (``19th``, ``1970s``, ``24h``, ``1920x1080``, ``10000``), ``a4`` and
    ``co2`` are none.
    """
    return _CODE.fullmatch(form) is not None and sum(map(str.isdigit, form)) >= _CODE_DIGITS


def fuse_lists(lists: Sequence[Sequence[Key]]) -> dict[Key, float]:
    """One order of several lists by reciprocal ranks, best first; equal ones in the order of the lists.

    The first list weighs 1 and the others share 1, at most a half each: nothing that the first list does not have comes
    before its best.
    """
    fused: dict[Key, Fraction] = {}
    for number, keys in enumerate(lists):
        shared_by = 1 if number == 0 else max(2, len(lists) - 1)
        for rank, key in enumerate(keys, start=1):
            fused[key] = fused.get(key, Fraction()) + Fraction(1, shared_by * (_LISTS_RANK_CONSTANT + rank))
    return {key: float(score) for key, score in sorted(fused.items(), key=lambda item: -item[1])}
