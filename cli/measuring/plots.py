"""Plots to a file, in the format that its name says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cli.client import Answer
from cli.errors import CommandError

_WIDTH, _HEIGHT = 8.0, 4.5
_RESOLUTION = 150


def draw_evaluation(path: Path, told: Answer) -> None:
    """A group of bars for each measure, a bar for each run, with 95 % confidence."""
    figure, axes = _figure(f"{told['dataset']['name']}, {told['dataset']['questions']} questions")
    runs = told["runs"]
    names = list(runs[0]["metrics"])
    width = 0.8 / len(runs)
    for at, run in enumerate(runs):
        means = [run["metrics"][name] for name in names]
        bounds = [run["intervals"][name] for name in names]
        places = [place + (at - (len(runs) - 1) / 2) * width for place in range(len(names))]
        axes.bar(places, means, width, label=run["name"], yerr=_errors(means, bounds), capsize=2)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(0, 1.05)
    axes.legend(loc="lower right")
    _save(figure, path)


def draw_calibration(path: Path, told: Answer, scores: Mapping[str, Sequence[float]]) -> None:
    """How the scores of relevant and irrelevant pairs lie, and the proposed threshold."""
    figure, axes = _figure(f"Scores in the space {told['space']}")
    low = min(min(some) for some in scores.values() if some)
    bins = [low + (1 - low) * step / 50 for step in range(51)]
    for name, some in scores.items():
        axes.hist(some, bins=bins, alpha=0.6, density=True, label=f"{name} ({len(some)})")
    if told["min_score"] is not None:
        axes.axvline(told["min_score"], color="black", linestyle="--", label=f"minScore {told['min_score']}")
    axes.set_xlabel("cosine")
    axes.set_ylabel("density")
    axes.legend()
    _save(figure, path)


def draw_recall(path: Path, told: Answer) -> None:
    """Recall by the share of the index that passes the filter, with 95 % confidence."""
    figure, axes = _figure(f"Recall@{told['top_n']} against exact search")
    shares = [row["share"] * 100 for row in told["selectivities"]]
    means = [row["recall"] for row in told["selectivities"]]
    bounds = [row["interval"] for row in told["selectivities"]]
    axes.errorbar(shares, means, yerr=_errors(means, bounds), marker="o", capsize=3)
    for share, mean, row in zip(shares, means, told["selectivities"], strict=True):
        axes.annotate(", ".join(row["strategies"]), (share, mean), textcoords="offset points", xytext=(0, -14))
    axes.set_xscale("log")
    axes.set_ylim(min(0.9, *(low for low, _ in bounds)) - 0.02, 1.01)
    axes.set_xlabel("of the index passes the filter, %")
    _save(figure, path)


def _figure(title: str) -> tuple[Figure, Axes]:
    figure = Figure((_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


def _errors(means: Sequence[float], bounds: Sequence[Sequence[float]]) -> Any:
    pairs = list(zip(means, bounds, strict=True))
    return [[max(0, mean - low) for mean, (low, _) in pairs], [max(0, high - mean) for mean, (_, high) in pairs]]


def _save(figure: Figure, path: Path) -> None:
    try:
        figure.savefig(path, dpi=_RESOLUTION)
    except OSError as fault:
        raise CommandError("UNWRITABLE", fault.strerror or str(fault), where=str(path)) from fault
    except ValueError as fault:
        raise CommandError("INVALID_OPTION", str(fault), where="--plot", remedy="name a .png, .svg or .pdf") from fault
