"""``cauce eval``: how well searches find what the questions of a set ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.client import Answer, CauceClient
from cli.command import AsJson, DataDir, OwnStack, Plot, Url, measuring
from cli.render import Screen


def evaluate(
    dataset: Annotated[
        Path, typer.Argument(help="A file in the SQuAD layout, a BEIR folder, or JSON lines.", show_default=False)
    ],
    *,
    mode: Annotated[
        list[str] | None, typer.Option("--mode", help="semantic, lexical or hybrid (default); repeat for more runs.")
    ] = None,
    technique: Annotated[
        list[str] | None,
        typer.Option(
            "--technique", help="rewrite, multi-query, hyde or rerank, joined by +: one more run of each mode; repeat."
        ),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="A parameter of every search; repeat.")
    ] = None,
    questions: Annotated[
        Path | None, typer.Option("--questions", help="Ask those of a parallel SQuAD file, in another language.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Which judgements of a BEIR folder.")] = "test",
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, metavar="N", help="Ask so many questions only, by chance.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sample and of the confidence intervals.")] = 1,
    save: Annotated[Path | None, typer.Option("--save", help="Write the report with each question's values.")] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Compare with what --save wrote, else with the first run.")
    ] = None,
    plot: Plot = None,
    own_stack: OwnStack = False,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Ingest a question set into a scratch tenant, ask in every mode, print what was found, and remove it again."""
    with measuring(as_json=as_json):
        from cli.measuring import evaluation, plots  # noqa: PLC0415 - needs an extra
        from cli.measuring.datasets import read_dataset  # noqa: PLC0415
        from cli.measuring.scratch import scratch_documents  # noqa: PLC0415
        from cli.measuring.stack import run_in_scratch  # noqa: PLC0415

        specs = evaluation.run_specs(mode or (), technique or (), param or ())
        asked = read_dataset(dataset, questions=questions, split=split)
        if sample is not None:
            asked = asked.sample(sample, seed)
        before = None if baseline is None else evaluation.read_baseline(baseline, asked)

        async def work(client: CauceClient, screen: Screen) -> bool:
            long = await evaluation.ask_long_ones(client, asked.questions) if evaluation.by_meaning(specs) else []
            async with scratch_documents(client, screen, asked.documents) as documents:
                outcomes, first = await evaluation.evaluate(client, screen, asked, documents, specs)
            first = [*long, *first]
            told, values = evaluation.report(asked, documents, specs, outcomes, first, seed=seed, baseline=before)
            screen.tell(told, show_evaluation)
            if save is not None:
                evaluation.save(save, told, asked, values)
            if plot is not None:
                plots.draw_evaluation(plot, told)
            return True

        run_in_scratch(work, url=url, data_dir=data_dir, as_json=as_json, own_stack=own_stack)


def show_evaluation(screen: Screen, told: Answer) -> None:
    """Print the runs, a line each, and what sets them apart."""
    dataset, runs = told["dataset"], told["runs"]
    screen.note(
        f"{dataset['name']}: {dataset['documents']} documents, {dataset['chunks']} chunks, {dataset['questions']}"
        f" questions, judged by {dataset['judged']}; 95 % confidence in brackets"
    )
    for note in dataset["notes"]:
        screen.note(note)
    names = list(runs[0]["metrics"])
    rows = []
    for run in runs:
        figures = [f"{run['metrics'][name]:.3f} [{_bounds(run['intervals'][name])}]" for name in names]
        cost = run["cost"]
        calls = f"{cost['model_calls']} calls, {cost['tokens_in']}+{cost['tokens_out']} tokens"
        rows.append((run["name"], *figures, f"{run['latency_ms']['p50']} / {run['latency_ms']['p95']}", calls))
    screen.table(("RUN", *names, "MS p50 / p95", "LANGUAGE MODEL"), rows)
    if told["first_answer_ms"] is not None:
        first = told["first_answer_ms"]
        screen.note(f"a first answer, with the question's vector to compute: {first['p50']} / {first['p95']} ms")
    for comparison in told["comparisons"]:
        for name, found in comparison["metrics"].items():
            against = f"{comparison['run']} against {comparison['against']}"
            change = f"{found['difference']:+.3f} [{_bounds(found['interval'], '+')}]"
            screen.say(f"{against}: {name} {change}, p {found['p']:.4f}")
    for run in runs:
        for fault, count in run["faults"].items():
            screen.note(f"{run['name']}: {count} times {fault}")


def _bounds(interval: list[float], sign: str = "") -> str:
    return ", ".join(f"{edge:{sign}.3f}" for edge in interval)
