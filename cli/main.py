"""The ``cauce`` console script."""

from __future__ import annotations

import typer

from cli.calibrate import calibrate
from cli.context import context
from cli.dead_letters import dead_letters
from cli.eval import evaluate
from cli.ingest import ingest
from cli.migrate import migrate
from cli.recall import recall
from cli.reindex import reindex
from cli.resources import resources
from cli.search import chunks, search
from cli.status import delete, retry, status
from cli.sweep import sweep
from cli.up import up

app = typer.Typer(
    name="cauce",
    help="Documents in, passages with their pages out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (up, ingest, status, delete, retry, search, context, chunks, sweep, reindex, calibrate, recall, migrate):
    app.command()(command)
app.command("eval")(evaluate)
app.add_typer(resources)
app.add_typer(dead_letters)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
