"""Asks every question of a set in several ways and measures what is found."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np

from cli.client import Answer, CauceClient
from cli.command import ModeName
from cli.errors import CommandError
from cli.measuring.datasets import Dataset, JudgedQuestion
from cli.measuring.measures import Values, compare, measure, percentiles, summary
from cli.measuring.scratch import ScratchDocuments, patiently
from cli.render import Screen

COSTS = ("answers_cached", "query_vectors", "model_calls", "tokens_in", "tokens_out", "cost")
COMPARED = ("nDCG@10", "MRR@10", "R@1")
SHORT_CHARACTERS = 500
"""What every model reads at once: none has more tokens for a text than characters, but for a few at its ends."""

TECHNIQUES: Mapping[str, Answer] = {
    "rewrite": {"rewrite": {"history": []}},
    "multi-query": {"multiQuery": 3},
    "hyde": {"hyde": True},
    "rerank": {"rerank": 30},
}
"""The parameters of a search that each stands for; the history is the question's own."""


Baseline: TypeAlias = Mapping[str, Mapping[str, Values]]
"""Values of an earlier report by run and measure, in the order of the questions."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One way to ask."""

    mode: str
    technique: str | None
    parameters: Answer

    @property
    def name(self) -> str:
        """As reports and plots call it."""
        return self.mode if self.technique is None else f"{self.mode} {self.technique}"

    def body(self, question: JudgedQuestion, top_n: int) -> Answer:
        """The request that asks a question this way."""
        body = {"query": question.text, "topN": top_n, "mode": self.mode, **self.parameters}
        if "rewrite" in body:
            body["rewrite"] = {"history": list(question.history)}
        return body


@dataclass(slots=True)
class Outcome:
    """What became of one way of asking, question by question."""

    rankings: list[list[str]] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    cost: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, ranking: list[str], milliseconds: float, executed: Answer) -> None:
        """Take in one answer."""
        self.rankings.append(ranking)
        self.milliseconds.append(milliseconds)
        techniques = executed.get("techniques") or []
        self.cost["answers_cached"] += bool(executed.get("cached"))
        if executed["mode"] != "lexical":
            self.cost["query_vectors"] += len(executed.get("queries") or [None])
        for done in techniques:
            self.cost["model_calls"] += done["model"] is not None and not done["cached"]
            for name in ("tokens_in", "tokens_out", "cost"):
                self.cost[name] += done[name] or 0
        legs = [(name, leg) for name, leg in executed["legs"].items() if leg is not None]
        for name, leg in (*legs, *((done["name"], done) for done in techniques)):
            if leg["status"] not in ("RAN", "SKIPPED"):
                self.faults[f"{name}: {leg['reason']}"] += 1


def run_specs(modes: Sequence[str], techniques: Sequence[str], parameters: Sequence[str]) -> list[RunSpec]:
    """Every mode by itself and with each of the techniques; ``hyde+rerank`` is both at once.

    Raises:
        CommandError: ``INVALID_OPTION``.
    """
    common = dict(map(_parameter, parameters))
    specs = []
    for mode in dict.fromkeys(modes or ("hybrid",)):
        if mode not in get_args(ModeName):
            remedy = f"choose among {', '.join(get_args(ModeName))}"
            raise CommandError("INVALID_OPTION", f"{mode!r} is no mode", where="--mode", remedy=remedy)
        specs.append(RunSpec(mode, None, common))
        for technique in dict.fromkeys(techniques):
            wanted = dict(common)
            for name in technique.split("+"):
                if name not in TECHNIQUES:
                    raise CommandError(
                        "INVALID_OPTION",
                        f"{name!r} is no technique",
                        where="--technique",
                        remedy=f"choose among {', '.join(TECHNIQUES)}, with + between those that go together",
                    )
                wanted |= TECHNIQUES[name]
            specs.append(RunSpec(mode, technique, wanted))
    return specs


def _parameter(given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not equals or not name or name in ("query", "topN", "mode"):
        raise CommandError(
            "INVALID_OPTION", "this is no parameter of a search", where=f"--param {given}", remedy="write NAME=VALUE"
        )
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


async def ask_long_ones(client: CauceClient, questions: Sequence[JudgedQuestion]) -> list[float]:
    """Ask by meaning those that a model may refuse, while there is nothing to find yet. Return the times.

    Raises:
        CommandError: ``QUERY_TOO_LONG``, with the question.
    """
    times = []
    for question in questions:
        if len(question.text) > SHORT_CHARACTERS:
            try:
                times.append(await first_ask(client, question))
            except CommandError as error:
                if error.code != "QUERY_TOO_LONG":
                    raise
                where = f"question {question.id}"
                raise CommandError(error.code, error.detail, where=where, remedy=error.remedy) from error
    return times


async def evaluate(
    client: CauceClient, screen: Screen, dataset: Dataset, documents: ScratchDocuments, specs: Sequence[RunSpec]
) -> tuple[list[Outcome], list[float]]:
    """Ask every question in every way, one at a time. Return the outcomes, and the times of the first of all answers.

    The ways take turns in being first, so that what happens on the machine meanwhile is shared among them. Each finds
    the question's vector known: computing it is in the first time alone, and those of long questions, which have been
    asked before, are not in it.
    """
    outcomes = [Outcome() for _ in specs]
    first: list[float] = []
    with screen.counting("questions asked", len(dataset.questions)) as step:
        for number, question in enumerate(dataset.questions):
            if by_meaning(specs) and len(question.text) <= SHORT_CHARACTERS:
                first.append(await first_ask(client, question))
            turn = number % len(specs)
            for at in (*range(turn, len(specs)), *range(turn)):
                answer, milliseconds = await ask(client, specs[at].body(question, documents.top_n))
                outcomes[at].add(documents.ranking(answer["results"]), milliseconds, answer["executed"])
            step()
    return outcomes, first


def by_meaning(specs: Sequence[RunSpec]) -> bool:
    """Whether any of the ways needs the questions' vectors."""
    return any(spec.mode != "lexical" for spec in specs)


async def first_ask(client: CauceClient, question: JudgedQuestion) -> float:
    """The milliseconds of an answer for which the question's vector is computed."""
    return (await ask(client, {"query": question.text, "topN": 1, "mode": "semantic"}))[1]


async def ask(client: CauceClient, body: Answer) -> tuple[Answer, float]:
    """The answer to a search, and the milliseconds that it took."""
    milliseconds = 0.0

    async def timed() -> Answer:
        nonlocal milliseconds
        started = time.perf_counter()
        answer = await client.ask(body)
        milliseconds = (time.perf_counter() - started) * 1e3
        return answer

    return await patiently(timed), milliseconds


def report(
    dataset: Dataset,
    documents: ScratchDocuments,
    specs: Sequence[RunSpec],
    outcomes: Sequence[Outcome],
    first: Sequence[float],
    *,
    seed: int,
    baseline: Baseline | None,
) -> tuple[Answer, dict[str, dict[str, Values]]]:
    """What ``--json`` prints, and the values of every question by run and measure."""
    relevant = [question.relevant for question in dataset.questions]
    values = {spec.name: measure(relevant, outcome.rankings) for spec, outcome in zip(specs, outcomes, strict=True)}
    notes = list(dataset.notes)
    if documents.empty:
        notes.append(f"{documents.empty} documents have no text to find")
    return {
        "dataset": {
            "name": dataset.name,
            "documents": len(dataset.documents),
            "chunks": documents.chunks,
            "questions": len(dataset.questions),
            "judged": "passages" if dataset.by_passage else "documents",
            "notes": notes,
        },
        "runs": [
            _run_report(spec, outcome, values[spec.name], seed) for spec, outcome in zip(specs, outcomes, strict=True)
        ],
        "first_answer_ms": percentiles(first) if first else None,
        "comparisons": _comparisons(specs, values, baseline, seed),
        "seed": seed,
    }, values


def _run_report(spec: RunSpec, outcome: Outcome, values: Mapping[str, Values], seed: int) -> Answer:
    metrics, intervals = summary(values, seed)
    return {
        "name": spec.name,
        "mode": spec.mode,
        "technique": spec.technique,
        "parameters": spec.parameters,
        "metrics": metrics,
        "intervals": intervals,
        "latency_ms": percentiles(outcome.milliseconds),
        "cost": {name: outcome.cost[name] for name in COSTS},
        "faults": dict(outcome.faults),
    }


def _comparisons(
    specs: Sequence[RunSpec],
    values: Mapping[str, Mapping[str, Values]],
    baseline: Baseline | None,
    seed: int,
) -> list[Answer]:
    """Every run with the first one, or with the run of its name in the baseline, else with the baseline's first."""
    if baseline is None:
        pairs = [(spec.name, specs[0].name, values[specs[0].name]) for spec in specs[1:]]
    else:
        first = next(iter(baseline))
        pairs = [
            (name, f"baseline {name if name in baseline else first}", baseline.get(name, baseline[first]))
            for name in values
        ]
    return [
        {
            "run": name,
            "against": against,
            "metrics": {which: compare(values[name][which], others[which], seed).as_json() for which in COMPARED},
        }
        for name, against, others in pairs
    ]


def save(path: Path, told: Answer, dataset: Dataset, values: Mapping[str, Mapping[str, Values]]) -> None:
    """Write a report with the values of every question, for ``--baseline`` of a later run."""
    whole = {
        **told,
        "questions": [question.id for question in dataset.questions],
        "values": {run: {name: some.tolist() for name, some in of_run.items()} for run, of_run in values.items()},
    }
    try:
        path.write_text(json.dumps(whole, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as fault:
        raise CommandError("UNWRITABLE", fault.strerror or str(fault), where=str(path)) from fault


def read_baseline(path: Path, dataset: Dataset) -> Baseline:
    """What an earlier run saved, in the order of the questions now.

    Raises:
        CommandError: ``BASELINE_INVALID``; also when it asked other questions.
    """
    remedy = "give a file that `cauce eval --save` wrote for the same questions"
    try:
        saved = json.loads(path.read_bytes())
        places = {id_: at for at, id_ in enumerate(saved["questions"])}
        if set(places) != {question.id for question in dataset.questions}:
            raise CommandError("BASELINE_INVALID", "it asked other questions", where=str(path), remedy=remedy)
        order = [places[question.id] for question in dataset.questions]
        return {
            run: {name: np.array(of_run[name], dtype=np.float64)[order] for name in COMPARED}
            for run, of_run in saved["values"].items()
        }
    except OSError as fault:
        raise CommandError("BASELINE_INVALID", fault.strerror or str(fault), where=str(path), remedy=remedy) from fault
    except (ValueError, LookupError, TypeError, AttributeError) as fault:
        raise CommandError("BASELINE_INVALID", "this is no saved run", where=str(path), remedy=remedy) from fault
