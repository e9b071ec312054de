"""Measures of rankings, and how sure one can be of them. The same seed gives the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ir_measures
import numpy as np
from ir_measures import RR, R, nDCG
from numpy.typing import NDArray

from cli.measuring.datasets import Grades

DEPTH = 10
MEASURES = {"nDCG@10": nDCG @ DEPTH, "MRR@10": RR @ DEPTH, **{f"R@{k}": R @ k for k in (1, 3, 5, DEPTH)}}
"""By the names that reports have. R@k is the share of what is relevant that stands among the first k."""

RESAMPLES = 2_000
PERMUTATIONS = 10_000
CONFIDENCE = 0.95
_BLOCK = 500

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """How much better one run is than another on the same questions, on average.

    Attributes:
        value: the mean of the differences.
        interval: of 95 % confidence.
        p: how often chance alone would make a difference as large, by turning signs at random (the randomisation test
            of Smucker, Allan and Carterette, CIKM 2007).
    """

    value: float
    interval: tuple[float, float]
    p: float

    def as_json(self) -> dict[str, Any]:
        """For a report."""
        low, high = self.interval
        return {"difference": _round(self.value), "interval": [_round(low), _round(high)], "p": _round(self.p)}


def measure(relevant: Sequence[Grades], rankings: Sequence[Sequence[str]]) -> dict[str, Values]:
    """Every measure of every question, in their order; a ranking lists what was found, best first, each once."""
    judged = {str(at): grades for at, grades in enumerate(relevant)}
    run = {str(at): {id_: float(-rank) for rank, id_ in enumerate(found)} for at, found in enumerate(rankings)}
    values = {name: np.zeros(len(relevant)) for name in MEASURES}
    names = {kind: name for name, kind in MEASURES.items()}
    for metric in ir_measures.iter_calc(list(MEASURES.values()), judged, run):
        values[names[metric.measure]][int(metric.query_id)] = metric.value
    return values


def interval(values: Values, seed: int) -> tuple[float, float]:
    """The bounds of the mean with 95 % confidence, by drawing questions with replacement (percentile bootstrap)."""
    rng = np.random.default_rng(seed)
    count = len(values)
    means = np.concatenate([values[rng.integers(0, count, (_BLOCK, count))].mean(axis=1) for _ in _blocks(RESAMPLES)])
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    return float(low), float(high)


def compare(values: Values, others: Values, seed: int) -> Difference:
    """Compare two runs question by question."""
    differences = values - others
    value = float(differences.mean())
    rng = np.random.default_rng(seed)
    as_large = 0
    for _ in _blocks(PERMUTATIONS):
        signs = rng.choice(np.array([-1.0, 1.0]), (_BLOCK, len(differences)))
        as_large += int(np.sum(np.abs((signs * differences).mean(axis=1)) >= abs(value) - 1e-12))
    return Difference(value, interval(differences, seed), (as_large + 1) / (PERMUTATIONS + 1))


def summary(values: Mapping[str, Values], seed: int) -> tuple[dict[str, float], dict[str, list[float]]]:
    """The mean of each measure, and the bounds of it."""
    means = {name: _round(float(some.mean())) for name, some in values.items()}
    bounds = {name: [_round(edge) for edge in interval(some, seed)] for name, some in values.items()}
    return means, bounds


def percentiles(milliseconds: Sequence[float]) -> dict[str, float]:
    """The median and the 95th percentile."""
    p50, p95 = np.percentile(milliseconds, [50, 95])
    return {"p50": round(float(p50), 2), "p95": round(float(p95), 2)}


def _blocks(draws: int) -> range:
    return range(draws // _BLOCK)


def _round(value: float) -> float:
    return round(value, 4)
