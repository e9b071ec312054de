"""``cauce calibrate``: a threshold for the scores of the active embedding space."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.client import Answer, CauceClient
from cli.command import AsJson, DataDir, OwnStack, Plot, Url, measuring
from cli.render import Screen


def calibrate(
    dataset: Annotated[
        Path | None,
        typer.Argument(help="A set as `cauce eval` takes it; without one, sentences and translations that come along."),
    ] = None,
    *,
    precision: Annotated[
        float, typer.Option("--precision", min=0, max=1, help="How much of what passes is to be relevant.")
    ] = 0.9,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, metavar="N", help="Ask so many questions only, by chance.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sample.")] = 1,
    plot: Plot = None,
    own_stack: OwnStack = False,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show how scores of relevant and irrelevant pairs lie, and propose a --min-score for a precision."""
    with measuring(as_json=as_json):
        from cli.measuring import calibration, evaluation, plots  # noqa: PLC0415 - needs an extra
        from cli.measuring.datasets import read_dataset  # noqa: PLC0415
        from cli.measuring.scratch import scratch_documents  # noqa: PLC0415
        from cli.measuring.stack import run_in_scratch  # noqa: PLC0415

        asked = None if dataset is None else read_dataset(dataset)
        if asked is not None and sample is not None:
            asked = asked.sample(sample, seed)

        async def work(client: CauceClient, screen: Screen) -> bool:
            if asked is not None:
                await evaluation.ask_long_ones(client, asked.questions)
            pairs = calibration.translations()
            async with scratch_documents(client, screen, pairs.documents) as documents:
                scores = await calibration.collect(client, screen, pairs, documents)
            check = calibration.check_translations(scores)
            if asked is not None:
                async with scratch_documents(client, screen, asked.documents) as documents:
                    scores = await calibration.collect(client, screen, asked, documents)
            name = None if asked is None else asked.name
            told = calibration.report(scores, check, dataset=name, precision=precision)
            screen.tell(told, show_calibration)
            if plot is not None:
                plots.draw_calibration(plot, told, {"relevant": scores.relevant, "irrelevant": scores.irrelevant})
            return True

        run_in_scratch(work, url=url, data_dir=data_dir, as_json=as_json, own_stack=own_stack)


def show_calibration(screen: Screen, told: Answer) -> None:
    """Print where scores lie, and the proposal."""
    screen.note(f"space {told['space']}, the first ten answers to {told['questions']} questions of {told['pairs_of']}")
    rows = [
        (kind, *(str(value) for value in told[kind].values()))
        for kind in ("relevant", "irrelevant")
        if told[kind] is not None
    ]
    screen.table(("PAIRS", "COUNT", "p5", "p25", "p50", "p75", "p95"), rows)
    if told["min_score"] is None:
        screen.say(f"no threshold brings a precision of {told['wanted_precision']}; the best is {told['precision']}")
    else:
        screen.say(
            f"--min-score {told['min_score']}: {told['precision']:.0%} of what passes is relevant,"
            f" and {told['kept']:.0%} of the relevant passes"
        )
    check = told["translations"]
    if check["warning"] is None:
        screen.say(f"{check['together']:.0%} of {check['sentences']} sentences are nearest to their translation")
    else:
        screen.say(f"WARNING: {check['warning']}")
