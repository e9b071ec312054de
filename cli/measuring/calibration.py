"""How the scores of an embedding space lie, and which threshold leaves how much that is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from statistics import median

from cli.client import Answer, CauceClient
from cli.measuring.datasets import Dataset, read_dataset
from cli.measuring.evaluation import ask
from cli.measuring.scratch import ScratchDocuments
from cli.render import Screen

TOP_N = 10
TOGETHER_MIN = 0.9
"""Of forty sentences about forty matters a space that knows both languages finds nearly every translation first."""


@dataclass(slots=True)
class Scores:
    """The cosines of what searches by meaning answered, and how often the first answer was right."""

    space: str = ""
    relevant: list[float] = field(default_factory=list)
    irrelevant: list[float] = field(default_factory=list)
    questions: int = 0
    first_right: int = 0


def translations() -> Dataset:
    """Sentences in Spanish as passages, and their translations as questions."""
    with as_file(files("cli.measuring") / "translations.jsonl") as path:
        return read_dataset(path)


async def collect(client: CauceClient, screen: Screen, dataset: Dataset, documents: ScratchDocuments) -> Scores:
    """The scores of the first ten answers to every question, each document or passage by its best chunk."""
    scores = Scores()
    only = {"fileIds": documents.file_ids} if len(documents.file_ids) == 1 else {}
    with screen.counting("questions asked", len(dataset.questions)) as step:
        for question in dataset.questions:
            body = {"query": question.text, "topN": documents.top_n, "mode": "semantic", **only}
            answer, _ = await ask(client, body)
            best: dict[str, float] = {}
            for found in answer["results"]:
                best.setdefault(documents.unit(found), found["score"])
            for rank, (unit, score) in enumerate(list(best.items())[:TOP_N]):
                right = question.relevant.get(unit, 0) > 0
                (scores.relevant if right else scores.irrelevant).append(score)
                scores.first_right += right and rank == 0
            scores.questions += 1
            scores.space = answer["executed"]["space"]
            step()
    return scores


def propose(scores: Scores, precision: float) -> Answer:
    """The lowest threshold, of four decimal places, at which so much of what is left is relevant, and what it keeps.

    Of the first ten answers to each question: another mixture of questions has another precision. ``min_score`` is None
    when no threshold brings it; ``precision`` is then the best that one brings.
    """
    pairs = [(score, True) for score in scores.relevant] + [(score, False) for score in scores.irrelevant]
    pairs = sorted(((math.floor(score * 1e4) / 1e4, relevant) for score, relevant in pairs), reverse=True)
    right, best, chosen = 0, (0.0, 0), None
    for count, (score, relevant) in enumerate(pairs, start=1):
        right += relevant
        if count < len(pairs) and pairs[count][0] == score:
            continue
        best = max(best, (right / count, right))
        if right / count >= precision:
            chosen = (score, right / count, right)
    found = len(scores.relevant)
    if chosen is None:
        return {"min_score": None, "precision": round(best[0], 4), "kept": round(best[1] / max(1, found), 4)}
    score, reached, kept = chosen
    return {"min_score": score, "precision": round(reached, 4), "kept": round(kept / found, 4)}


def distribution(scores: Sequence[float]) -> Answer | None:
    """Where scores lie."""
    if not scores:
        return None
    ordered = sorted(scores)
    shown = {f"p{part}": ordered[round(part / 100 * (len(ordered) - 1))] for part in (5, 25, 50, 75, 95)}
    return {"count": len(ordered)} | {name: round(value, 4) for name, value in shown.items()}


def check_translations(scores: Scores) -> Answer:
    """Whether the space brings a sentence and its translation together."""
    together = scores.first_right / scores.questions
    warning = None
    if together < TOGETHER_MIN:
        warning = (
            f"only {together:.0%} of the sentences are nearest to their translation: this space does not bring"
            " languages together; choose a multilingual model"
        )
    return {
        "sentences": scores.questions,
        "together": round(together, 4),
        "translation_p50": round(median(scores.relevant), 4) if scores.relevant else None,
        "others_p50": round(median(scores.irrelevant), 4) if scores.irrelevant else None,
        "warning": warning,
    }


def report(scores: Scores, check: Answer, *, dataset: str | None, precision: float) -> Answer:
    """What ``--json`` prints."""
    return {
        "space": scores.space,
        "pairs_of": dataset or "translations",
        "questions": scores.questions,
        "relevant": distribution(scores.relevant),
        "irrelevant": distribution(scores.irrelevant),
        "wanted_precision": precision,
        **propose(scores, precision),
        "translations": check,
    }
