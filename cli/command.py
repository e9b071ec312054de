"""What the commands share: their options, and the way from arguments to an exit status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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
Mode: TypeAlias = Annotated[
    Literal["semantic", "lexical", "hybrid"] | None,
    typer.Option("--mode", help="By meaning, by words, or by both. Else what the service is set to."),
]
Work: TypeAlias = Callable[[CauceClient, Screen], Awaitable[bool]]


def run(work: Work, *, url: str | None, data_dir: Path | None, as_json: bool) -> None:
    """Find the stack and do the work; the exit status is 1 when it returns False or raises a CommandError."""
    screen = Screen(as_json=as_json)
    try:
        well = asyncio.run(_run(work, screen, url, data_dir))
    except CommandError as error:
        screen.fail(error)
        well = False
    if not well:
        raise typer.Exit(1)


async def _run(work: Work, screen: Screen, url: str | None, data_dir: Path | None) -> bool:
    async with open_http() as http:
        addresses = await find_addresses(http, CommandSettings(), url=url, data_dir=data_dir)
        return await work(CauceClient(http, addresses), screen)
