"""How the legs of a search look for their candidates, and what to do when they came back with too few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from services.search.application.ports import Question
from services.search.domain.criteria import TOP_N_MAX
from services.search.domain.results import Leg, Legs, LegStatus, Strategy, Total

LEXICAL_EXACT_UP_TO = 200
"""Scoring a text by itself takes about 50 microseconds; an index scan may have to be repeated."""

LEXICAL_READ_MAX = 100_000
"""The most matches that are read from the index of words in search of those that pass the filter: pg_textsearch's."""

READ_FOR_A_SCORE = 30
"""How many matches are read from the index of words in the time that scoring a text by itself takes."""

THINNED_OUT = 5
"""How many times the candidates a walk for meaning alone goes on for, where a filter thins it out."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much passes a filter: ``counted`` of it, and counting stopped at one more than ``most``."""

    counted: int
    most: int

    @property
    def is_small(self) -> bool:
        """Whether all that passes was counted: then it can be compared one by one."""
        return self.counted <= self.most


@dataclass(frozen=True, slots=True)
class Plan:
    """What each leg does, None for one that does not run.

    Attributes:
        dense: EXACT or HNSW.
        lexical: EXACT or BM25.
        window: the most candidates that a leg brings to the fusion.
        dense_limit: the most that the semantic leg brings.
        lexical_limit: how many matches the index of words is asked for, whether or not they pass the filter.
    """

    dense: Strategy | None
    lexical: Strategy | None
    window: int
    dense_limit: int
    lexical_limit: int

    def improved(self, counts: Mapping[str, int], size: Size, top_n: int) -> Plan | None:
        """Another plan when this one brought fewer than there may be, None when nothing is left to try."""
        better = self
        if self.dense is Strategy.HNSW and counts["dense_found"] < min(top_n, size.counted):
            better = replace(better, dense=Strategy.EXACT)
        if self._lexical_is_short(counts):
            passing = counts["lexical_passing"]
            further = min(2 * self.lexical_limit * self.window // max(passing, 1), LEXICAL_READ_MAX)
            if size.is_small and further > READ_FOR_A_SCORE * size.counted:
                better = replace(better, lexical=Strategy.EXACT)
            elif further > self.lexical_limit:
                better = replace(better, lexical_limit=further)
            elif size.is_small or (self.dense is None and passing < top_n):
                better = replace(better, lexical=Strategy.EXACT)
        return None if better == self else better

    def legs(self, counts: Mapping[str, int], size: Size, lexical_fault: str | None) -> Legs:
        """What the legs did. One is complete if it filled its window or looked at everything that passes the filter."""
        semantic = None
        if self.dense is not None:
            wanted = min(self.window, self.dense_limit, size.counted)
            ended = self.dense is Strategy.HNSW and counts["dense_found"] < wanted
            reason = (
                "the walk of the index of vectors ended before it had found as many as are compared" if ended else None
            )
            semantic = Leg(LegStatus.RAN, self.dense, counts["dense_found"], not ended, reason)
        if lexical_fault is not None:
            return Legs(semantic, Leg(LegStatus.FAILED, complete=False, reason=lexical_fault))
        if self.lexical is None:
            return Legs(semantic)
        short = self._lexical_is_short(counts)
        reason = f"the first {self.lexical_limit} matches were read; few of them pass the filter" if short else None
        return Legs(semantic, Leg(LegStatus.RAN, self.lexical, counts["lexical_found"], not short, reason))

    def total(self, counts: Mapping[str, int], size: Size, min_score: float | None, rows: int) -> Total:
        """How many match, as far as the legs and the count of what passes the filter can tell.

        Args:
            counts: of the legs.
            size: how much passes the filter.
            min_score: the threshold.
            rows: how many were returned.
        """
        if self.dense is Strategy.EXACT:
            return Total(counts["dense_passing"])
        if self.dense is None:
            if self.lexical is Strategy.EXACT or counts["lexical_read"] < self.lexical_limit:
                return Total(counts["lexical_passing"])
            reason = f"only the first {self.lexical_limit} matches of the index of words were read"
            return Total(counts["lexical_passing"], exact=False, reason=reason)
        if min_score is not None:
            reason = "the approximate index was walked; what it did not reach was not compared with minScore"
            return Total(max(counts["dense_passing"], rows), exact=False, reason=reason)
        if size.is_small:
            return Total(size.counted)
        reason = f"more than {size.most} pass the filter, and counting stopped there"
        return Total(max(size.counted, counts["dense_found"], rows), exact=False, reason=reason)

    def _lexical_is_short(self, counts: Mapping[str, int]) -> bool:
        return (
            self.lexical is Strategy.BM25
            and counts["lexical_read"] >= self.lexical_limit
            and counts["lexical_passing"] < self.window
        )


def make_plan(
    question: Question,
    size: Size,
    *,
    top_n: int,
    candidates: int,
    filtered: bool,
    exact: bool = False,
) -> Plan:
    """The first plan for a question: of what the index holds, never of what was asked before.

    Args:
        question: says which legs run.
        size: how much passes the filter.
        top_n: how many results are wanted.
        candidates: how many each leg brings to the fusion, at least. The plan is the same for every ``top_n`` up to it,
            up to 4 times it, and beyond, so that asking for more results seldom brings up a better one.
        filtered: whether there is a filter besides the scope.
        exact: whether vectors are to be compared one by one, however many pass the filter.
    """
    window = next(some for some in (candidates, 4 * candidates, TOP_N_MAX) if some >= min(top_n, TOP_N_MAX))
    dense = None if question.vector is None else Strategy.EXACT if exact or size.is_small else Strategy.HNSW
    lexical = None
    if question.text is not None:
        lexical = Strategy.EXACT if size.is_small and size.counted <= LEXICAL_EXACT_UP_TO else Strategy.BM25
    fused = dense is not None and lexical is not None
    # Beyond what is wanted the walk goes on where a filter thins it out: it finds more of the true neighbours so.
    dense_limit = max(window, THINNED_OUT * candidates) if filtered and not fused else window
    return Plan(dense, lexical, window, dense_limit, 4 * window if filtered else window)
