"""Compares what the index finds with what comparing everything finds, on the live index, by filter selectivity."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cli.client import Answer, CauceClient
from cli.errors import CommandError
from cli.measuring.evaluation import ask
from cli.measuring.measures import interval, percentiles
from cli.render import Screen

FILES_MAX = 1_000
"""As many files as a filter takes."""

QUESTION_CHARACTERS = 200
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file that has chunks."""

    file_id: int
    chunks: int
    created_at: str


@dataclass(frozen=True, slots=True)
class Narrowing:
    """A filter of a search, and the share of the chunks that pass it."""

    parameters: Answer
    share: float


async def indexed_files(client: CauceClient) -> list[IndexedFile]:
    """The files that can be found, oldest first.

    Raises:
        CommandError: ``NOTHING_INDEXED``.
    """
    found = [
        IndexedFile(file["file_id"], file["chunks"], file["created_at"])
        async for file in client.files()
        if file["chunks"]
    ]
    if not found:
        raise CommandError(
            "NOTHING_INDEXED", "the stack has no passages", remedy="send files with `cauce ingest` first"
        )
    return sorted(found, key=lambda file: (file.created_at, file.file_id))


async def sample_questions(
    client: CauceClient, files: Sequence[IndexedFile], count: int, rng: random.Random
) -> list[str]:
    """The beginnings of passages chosen by chance, as questions."""
    weights = [file.chunks for file in files]
    questions = []
    for file in rng.choices(files, weights, k=count):
        chunks = (await client.chunks(file.file_id, pages=None))["chunks"]
        text = rng.choice(chunks)["text"] if chunks else ""
        questions.append(text[:QUESTION_CHARACTERS].rsplit(None, 1)[0] if text.strip() else "?")
    return questions


def narrow(files: Sequence[IndexedFile], share: float, rng: random.Random) -> Narrowing:
    """A filter that about this share of the chunks passes.

    Files chosen by chance; where a filter would have to name too many, those made in a span of time.
    """
    total = sum(file.chunks for file in files)
    if share >= 1:
        return Narrowing({}, 1.0)
    chosen: list[IndexedFile] = []
    passing = 0
    for file in rng.sample(files, len(files)):
        if not chosen or passing + file.chunks / 2 <= share * total:
            chosen.append(file)
            passing += file.chunks
        if passing >= share * total:
            break
    if len(chosen) <= FILES_MAX:
        return Narrowing({"fileIds": sorted(file.file_id for file in chosen)}, passing / total)
    return _span(files, share, rng, total)


def _span(files: Sequence[IndexedFile], share: float, rng: random.Random, total: int) -> Narrowing:
    start = rng.randrange(max(1, int(len(files) * (1 - share))))
    passing, end = 0, start
    while end < len(files) and (passing < share * total or files[end].created_at == files[end - 1].created_at):
        passing += files[end].chunks
        end += 1
    parameters = {"createdFrom": files[start].created_at}
    if end < len(files):
        parameters["createdBefore"] = files[end].created_at
    return Narrowing(parameters, passing / total)


async def measure_recall(
    client: CauceClient,
    screen: Screen,
    files: Sequence[IndexedFile],
    questions: Sequence[str],
    *,
    shares: Sequence[float],
    top_n: int,
    seed: int,
) -> Answer:
    """What ``--json`` prints: a row for each share, each question under a filter of its own."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    rows = []
    space = ""
    for share in shares:
        passing, recalls = [], []
        times: dict[bool, list[float]] = {False: [], True: []}
        strategies: Counter[str] = Counter()
        with screen.counting(f"questions asked at {share:.1%}", len(questions)) as step:
            for question in questions:
                narrowing = narrow(files, share, rng)
                body = {"query": question, "topN": top_n, "mode": "semantic", **narrowing.parameters}
                await ask(client, {**body, "topN": 1})  # so that both find the question's vector known
                found, milliseconds = await ask(client, body)
                compared, exact_milliseconds = await ask(client, {**body, "exact": True})
                times[False].append(milliseconds)
                times[True].append(exact_milliseconds)
                strategies[found["executed"]["strategy"]] += 1
                space = found["executed"]["space"]
                passing.append(narrowing.share)
                recalls.append(recall(_scores(found), _scores(compared)))
                step()
        rows.append(
            {
                "wanted": share,
                "share": round(float(np.mean(passing)), 6),
                "recall": round(float(np.mean(recalls)), 4),
                "interval": [round(edge, 4) for edge in interval(np.array(recalls), seed)],
                "strategies": dict(strategies),
                "latency_ms": percentiles(times[False]),
                "exact_latency_ms": percentiles(times[True]),
            }
        )
    return {
        "space": space,
        "top_n": top_n,
        "files": len(files),
        "chunks": sum(file.chunks for file in files),
        "questions": len(questions),
        "selectivities": rows,
        "seed": seed,
    }


def recall(found: Sequence[float], compared: Sequence[float]) -> float:
    """The share of the true nearest that was found, by their scores: of equally near ones any will do."""
    if not compared:
        return 1.0
    least = min(compared) - TOLERANCE
    return min(1.0, sum(score >= least for score in found) / len(compared))


def _scores(answer: Answer) -> list[float]:
    return [found["score"] for found in answer["results"]]
