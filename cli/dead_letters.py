"""``cauce dead-letters``: records that the intake could not read or handle, and sending them again."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from cli.client import Answer, CauceClient
from cli.command import AsJson, DataDir, Url, run
from cli.render import Screen, printable

Partition: TypeAlias = Annotated[int, typer.Argument(metavar="PARTITION", min=0, show_default=False)]
Offset: TypeAlias = Annotated[int, typer.Argument(metavar="OFFSET", min=0, show_default=False)]

dead_letters = typer.Typer(name="dead-letters", help="Records that could not be read or handled.", no_args_is_help=True)


@dead_letters.command("list")
def list_(url: Url = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Print where each is (partition, offset), why, when, where it came from, and what was wrong, one a line."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        async for letter in client.dead_letters():
            if as_json:
                screen.record(letter)
            else:
                screen.row(*_row(letter))
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


@dead_letters.command()
def show(
    partition: Partition, offset: Offset, url: Url = None, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Print one with its headers, key and value."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        letter = await client.dead_letter(partition, offset)
        screen.tell(letter, _show)
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


@dead_letters.command()
def replay(
    partition: Partition, offset: Offset, url: Url = None, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Send one to where it came from, as it came, and say what became of it; the status is 1 if it came back."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        answer = await client.replay(partition, offset)
        if as_json:
            screen.record(answer)
        else:
            again = answer["dead_letter"]
            end = "" if again is None else ": " + " ".join(_row(again))
            screen.say(f"sent to {_place(answer['sent_to'])}: {answer['outcome']}{end}")
        return bool(answer["outcome"] != "SET_ASIDE")

    run(work, url=url, data_dir=data_dir, as_json=as_json)


def _row(letter: Answer) -> tuple[str, ...]:
    said = (letter["reason"] or "-", letter["set_aside_at"], _place(letter["origin"]), letter["detail"] or "-")
    return (str(letter["partition"]), str(letter["offset"]), *map(printable, said))


def _show(screen: Screen, letter: Answer) -> None:
    for name in ("reason", "detail", "set_aside_at"):
        screen.row(name, printable(letter[name] or "-"))
    screen.row("origin", _place(letter["origin"]))
    for header in letter["headers"]:
        screen.row(f"header {printable(header['name'])}", _data(header["value"]))
    screen.row("key", _data(letter["key"]))
    screen.row("value", _data(letter["value"]))


def _place(place: Answer | None) -> str:
    return "-" if place is None else printable(f"{place['topic']}/{place['partition']}/{place['offset']}")


def _data(data: Answer | None) -> str:
    if data is None:
        return "-"
    return f"base64:{data['data']}" if data["encoding"] == "base64" else printable(data["data"])
