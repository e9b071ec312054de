"""Where a measurement takes place: a scratch tenant of the stack that is found, else a stack of its own."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cli.addresses import find_addresses
from cli.client import open_http
from cli.command import Work, run
from cli.errors import CommandError
from cli.render import Screen
from cli.settings import CommandSettings
from services.chassis.kernel.errors import CauceError

_PLACES = ("CAUCE_STORAGE_URL", "CAUCE_TENANT", "CAUCE_DATA_DIR")
_PLACE_PREFIXES = ("CAUCE_KAFKA_",)
_PLACE_SUFFIXES = ("_DATABASE_URL",)


def run_in_scratch(work: Work, *, url: str | None, data_dir: Path | None, as_json: bool, own_stack: bool) -> None:
    """Do the work in a new scratch tenant; it is for the work to remove what it puts there.

    The stack is the one that other commands find. Where there is none, and none is named, or with ``own_stack``, one is
    started in a temporary folder and removed at the end. A request to terminate ends the work as Ctrl-C does.
    """
    # A script's process in the background ignores Ctrl-C; nobody can send it one, but what follows must not be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    scratch = f"measure-{secrets.token_hex(6)}"
    if not (own_stack or _is_none(url, data_dir)):
        run(work, url=url, data_dir=data_dir, as_json=as_json, scratch=scratch)
        return
    screen = Screen(as_json=as_json)
    with own_stack_folder(screen) as folder:
        run(work, url=None, data_dir=folder, as_json=as_json, scratch=scratch)


def _is_none(url: str | None, data_dir: Path | None) -> bool:
    """Whether there is no stack and none is named."""
    settings = CommandSettings()
    named = (url, data_dir, settings.url, settings.files_url, settings.search_url, settings.embeddings_url)
    if any(name is not None for name in named):
        return False

    async def find() -> None:
        async with open_http() as http:
            await find_addresses(http, settings)

    try:
        asyncio.run(find())
    except CommandError as error:
        return error.code == "STACK_NOT_FOUND"
    return False


@contextmanager
def own_stack_folder(screen: Screen) -> Iterator[Path]:
    """The data folder of a stack that runs for the time of the context, with the caller's settings but its own data."""
    # Here, because this is the only command besides `up` that needs the servers.
    from deploy.embedded.child import running_stack  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="cauce-measure-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # Under root the database runs under an account of its own, which has to get through.
        folder.chmod(0o711)
        screen.note("a stack of its own starts in a temporary folder")
        try:
            with running_stack(folder / "stack", screen.note, environment=_own(os.environ)) as stack:
                yield stack.data_dir
        except CauceError as error:
            raise CommandError(error.code, error.message, where=error.where, remedy=error.remedy) from error


def _own(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name not in _PLACES and not name.startswith(_PLACE_PREFIXES) and not name.endswith(_PLACE_SUFFIXES)
    }
