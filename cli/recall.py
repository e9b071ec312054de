"""``cauce recall``: how much of the true nearest the index of vectors finds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated

import typer

from cli.client import Answer, CauceClient
from cli.command import AsJson, DataDir, Plot, Url, measuring, run
from cli.errors import CommandError
from cli.render import Screen

SHARES = (1.0, 0.5, 0.1, 0.01, 0.001)


def recall(
    *,
    questions: Annotated[
        Path | None, typer.Option("--questions", help="A question a line; else beginnings of passages, by chance.")
    ] = None,
    sample: Annotated[
        int, typer.Option("--sample", min=1, max=10_000, metavar="N", help="Ask so many questions at each selectivity.")
    ] = 50,
    top_n: Annotated[int, typer.Option("--top-n", min=1, max=1000, metavar="N", help="Compare the first N.")] = 10,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of what is chosen by chance.")] = 1,
    plot: Plot = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Compare searches of the live index with exact ones, where 100, 50, 10, 1 and 0.1 % of it pass a filter."""
    with measuring(as_json=as_json):
        from cli.measuring import plots  # noqa: PLC0415 - needs an extra
        from cli.measuring.recall import indexed_files, measure_recall, sample_questions  # noqa: PLC0415

        async def work(client: CauceClient, screen: Screen) -> bool:
            rng = random.Random(seed)  # noqa: S311 - no secret
            files = await indexed_files(client)
            if questions is None:
                asked = await sample_questions(client, files, sample, rng)
            else:
                asked = _read_questions(questions)
                asked = rng.sample(asked, min(sample, len(asked)))
            told = await measure_recall(client, screen, files, asked, shares=SHARES, top_n=top_n, seed=seed)
            screen.tell(told, show_recall)
            if plot is not None:
                plots.draw_recall(plot, told)
            return True

        run(work, url=url, data_dir=data_dir, as_json=as_json)


def show_recall(screen: Screen, told: Answer) -> None:
    """Print a line for each selectivity."""
    screen.note(f"{told['files']} files, {told['chunks']} chunks, {told['questions']} questions, space {told['space']}")
    rows = []
    for row in told["selectivities"]:
        low, high = row["interval"]
        rows.append(
            (
                f"{row['wanted']:.1%}",
                f"{row['share']:.2%}",
                f"{row['recall']:.3f} [{low:.3f}, {high:.3f}]",
                ", ".join(f"{name} {count}" for name, count in row["strategies"].items()),
                f"{row['latency_ms']['p50']} / {row['latency_ms']['p95']}",
                f"{row['exact_latency_ms']['p50']} / {row['exact_latency_ms']['p95']}",
            )
        )
    heading = ("WANTED", "PASSES", f"RECALL@{told['top_n']}", "STRATEGY", "MS p50 / p95", "EXACT MS p50 / p95")
    screen.table(heading, rows)


def _read_questions(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise CommandError("UNREADABLE", str(fault), where=str(path)) from fault
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise CommandError("UNREADABLE", "there is no question in it", where=str(path), remedy="write one a line")
    return found
