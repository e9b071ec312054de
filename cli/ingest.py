"""``cauce ingest``: files and folders into the stack, a few at once, a line each as soon as it is final."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from cli.client import Answer, CauceClient
from cli.command import AsJson, DataDir, Url, run
from cli.errors import CommandError
from cli.render import LINE_FIELDS, FileProgress, Screen
from cli.walk import Skipped, Unusable, find_files

UPLOADS_AT_ONCE = 4
FILES_IN_FLIGHT = 16
"""Each file that is waited for holds a connection."""

Wait = Annotated[bool, typer.Option("--wait", help="Wait until every file is COMPLETED or FAILED.")]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop waiting after this time; processing goes on."),
]


def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders to go through.", show_default=False)],
    *,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Send files to the stack and print a line for each."""
    check_timeout(timeout, wait=wait)

    async def work(client: CauceClient, screen: Screen) -> bool:
        with screen.progress() as progress:
            return await Ingestion(client, screen, progress, wait=wait, timeout=timeout).run(find_files(paths))

    run(work, url=url, data_dir=data_dir, as_json=as_json)


class Ingestion:
    """One run of the command over many files. What goes wrong with one file stops no other."""

    def __init__(
        self, client: CauceClient, screen: Screen, progress: FileProgress, *, wait: bool, timeout: float | None
    ) -> None:
        self._client = client
        self._screen = screen
        self._progress = progress
        self._wait = wait
        self._deadline = deadline_after(timeout)
        self._uploads = asyncio.Semaphore(UPLOADS_AT_ONCE)
        self._all_well = True

    async def run(self, found: Iterable[Path | Skipped | Unusable]) -> bool:
        """Ingest all that is found; True when nothing failed."""
        shared = iter(found)
        await asyncio.gather(*(self._take_from(shared) for _ in range(FILES_IN_FLIGHT)))
        return self._all_well

    async def _take_from(self, found: Iterator[Path | Skipped | Unusable]) -> None:
        for item in found:
            match item:
                case Skipped():
                    self._screen.note(f"skipped {item.path}: {item.reason}")
                case Unusable():
                    self._print(unsent(str(item.path)) | {"status": "FAILED"} | _error(item.error))
                case _:
                    self._print(await self._ingest(item))

    async def _ingest(self, path: Path) -> Answer:
        with self._progress.file(path.name) as bar:
            file = unsent(path.name)
            try:
                async with self._uploads:
                    file |= await self._client.create_file(path.name)
                    file |= await self._client.send_content(file["file_id"], path, bar.sent)
            except CommandError as error:
                return file | {"status": "FAILED"} | _error(error)
            except OSError as fault:
                return file | {"status": "FAILED"} | _error(_unreadable(fault))
            return await wait_for(self._client, file, self._deadline, bar.show) if self._wait else file

    def _print(self, file: Answer) -> None:
        self._all_well &= file["error_code"] is None and file["status"] != "FAILED"
        self._screen.line(file)


def check_timeout(timeout: float | None, *, wait: bool) -> None:
    """Refuse a timeout that nothing waits for."""
    if timeout is not None and not wait:
        raise typer.BadParameter("it goes with --wait", param_hint="--timeout")


async def wait_for(
    client: CauceClient, file: Answer, deadline: float | None, on_change: Callable[[Answer], None]
) -> Answer:
    """Wait until a file is final; its last known state with an ``error_code`` when the wait ended before that.

    ``deadline`` is a time of the event loop's clock.
    """
    known = file

    def keep(state: Answer) -> None:
        nonlocal known
        known = state
        on_change(state)

    try:
        async with asyncio.timeout_at(deadline):
            return await client.wait_for(file["file_id"], keep)
    except TimeoutError:
        error = CommandError("WAIT_TIMEOUT", "not final in the given time; processing goes on")
    except CommandError as raised:
        error = raised
    return known | _error(error)


def deadline_after(timeout: float | None) -> float | None:
    """The time of the running event loop's clock ``timeout`` seconds from now."""
    return None if timeout is None else asyncio.get_running_loop().time() + timeout


def unsent(name: str) -> Answer:
    """The line of a file of which the stack knows nothing."""
    return dict.fromkeys(LINE_FIELDS) | {"name": name}


def _error(error: CommandError) -> Answer:
    return {"error_code": error.code, "error_message": error.message}


def _unreadable(fault: OSError) -> CommandError:
    return CommandError("UNREADABLE", fault.strerror or str(fault))
