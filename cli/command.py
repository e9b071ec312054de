"""What the commands share: their options, and the way from arguments to an exit status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from cli.addresses import find_addresses
from cli.client import CauceClient, open_http
from cli.errors import CommandError
from cli.render import Screen
from cli.settings import CommandSettings

FileId: TypeAlias = Annotated[int, typer.Argument(help="The file's id.", show_default=False)]
Url: TypeAlias = Annotated[
    str | None, typer.Option("--url", help="Any service of the stack; it knows the others. Else CAUCE_URL.")
]
DataDir: TypeAlias = Annotated[
    Path | None,
    typer.Option("--data-dir", help="The data folder of a stack that `cauce up` runs. Else CAUCE_DATA_DIR."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON lines on standard output.")]
ModeName: TypeAlias = Literal["semantic", "lexical", "hybrid"]
Mode: TypeAlias = Annotated[
    ModeName | None,
    typer.Option("--mode", help="By meaning, by words, or by both. Else what the service is set to."),
]
OwnStack: TypeAlias = Annotated[
    bool, typer.Option("--own-stack", help="Start a stack for it in a temporary folder, even if one is found.")
]
Plot: TypeAlias = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw it to a .png, .svg or .pdf as well.")
]
Work: TypeAlias = Callable[[CauceClient, Screen], Awaitable[bool]]


def run(work: Work, *, url: str | None, data_dir: Path | None, as_json: bool, scratch: str | None = None) -> None:
    """Find the stack and do the work; the exit status is 1 when it returns False or raises a CommandError.

    ``scratch`` names the scratch tenant to work in, in place of the stack's own tenant.
    """
    screen = Screen(as_json=as_json)
    try:
        well = asyncio.run(_run(work, screen, url, data_dir, scratch))
    except CommandError as error:
        screen.fail(error)
        well = False
    if not well:
        raise typer.Exit(1)


async def _run(work: Work, screen: Screen, url: str | None, data_dir: Path | None, scratch: str | None) -> bool:
    async with open_http(scratch) as http:
        addresses = await find_addresses(http, CommandSettings(), url=url, data_dir=data_dir)
        return await work(CauceClient(http, addresses), screen)


@contextmanager
def measuring(*, as_json: bool) -> Iterator[None]:
    """For what needs the ``measuring`` extra: a fault before the work ends the command as one in it does."""
    try:
        yield
    except CommandError as error:
        fault = error
    except ModuleNotFoundError as error:
        fault = CommandError(
            "EXTRA_MISSING",
            f"the package {error.name} is not installed",
            remedy="install cauce[measuring]; `make setup` has it",
        )
    else:
        return
    Screen(as_json=as_json).fail(fault)
    raise typer.Exit(1)
