"""``cauce reindex``: another embedding space, built beside the active one while searches go on in that."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from cli.client import Answer, CauceClient
from cli.command import AsJson, DataDir, Url, run
from cli.errors import CommandError
from cli.render import Screen

POLL_SECONDS = 1.0


def reindex(
    *,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Build this space, or go on with it, and follow it.")
    ] = None,
    texts_per_minute: Annotated[
        int | None,
        typer.Option("--texts-per-minute", min=0, help="At most so many, of all workers together; 0 lets it rest."),
    ] = None,
    swap: Annotated[
        bool, typer.Option("--swap", help="Make it the active space, with --space as soon as nothing is missing.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Print how the spaces stand.")] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="Go back to the space that was active before.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Give up the space beside the active one.")] = False,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Change the embedding space without stopping: build, swap, go back, drop."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        if [space is not None or swap, status, rollback, drop].count(True) != 1:
            raise CommandError(
                "OPTIONS_UNCLEAR", "say one of --space, --swap (which go together), --status, --rollback and --drop"
            )
        if texts_per_minute is not None and (space is None or (swap and not texts_per_minute)):
            raise CommandError("OPTIONS_UNCLEAR", "--texts-per-minute is for a --space that is built")
        if space is not None:
            spaces = await _build(client, screen, space, texts_per_minute)
        if swap or rollback:
            spaces = await client.change_space("rollback" if rollback else "swap")
        elif drop:
            spaces = await client.drop_space()
        elif status:
            spaces = await client.spaces()
        for one in spaces:
            screen.confirm(one, describe(one))
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


async def _build(client: CauceClient, screen: Screen, name: str, texts_per_minute: int | None) -> list[Answer]:
    """Have it built, and show how far it is until nothing is missing; the workers go on even when this is ended."""
    spaces = await client.build_space(name, texts_per_minute)
    said = None
    while True:
        built = next((one for one in spaces if one["name"] == name and one["state"] == "BUILDING"), None)
        if built is None:
            raise CommandError("SPACE_GONE", f"{name} is built no more", remedy="look at `cauce reindex --status`")
        if not built["missing"] or built["texts_per_minute"] == 0:
            return spaces
        if (line := describe(built)) != said:
            screen.note(line)
            said = line
        await asyncio.sleep(POLL_SECONDS)
        spaces = await client.spaces()


def describe(space: Answer) -> str:
    """A space in a line."""
    made = space["texts"] - space["missing"]
    line = f"{space['state']:9} {space['name']}  {made} of {space['texts']} texts"
    if space["texts_per_minute"] is not None:
        line += f", at most {space['texts_per_minute']} a minute"
    return f"{line}; {space['fault']}" if space["fault"] else line
