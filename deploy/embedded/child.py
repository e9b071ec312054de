"""A stack in a process of its own, for the time of a context: ``cauce up`` as a child."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from services.chassis.kernel.errors import UnavailableError

STOP_SECONDS = 60.0
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class RunningStack:
    """The stack as it announced itself."""

    process: subprocess.Popen[bytes]
    data_dir: Path
    announcement: dict[str, Any]


@contextmanager
def running_stack(
    folder: Path, say: Callable[[str], None], *, keep: bool = False, environment: Mapping[str, str] | None = None
) -> Iterator[RunningStack]:
    """Run ``cauce up`` on a folder and say what it says. Afterwards stop it, unless all went well and it is to be kept.

    Args:
        folder: where it keeps everything; made here.
        say: gets each line of its log.
        keep: leave it running.
        environment: its settings; those of this process when None.

    Raises:
        UnavailableError: ``STACK_NOT_STARTED``.
    """
    folder.mkdir()
    output, log = folder.with_suffix(".out"), folder.with_suffix(".log")
    command = [sys.executable, "-P", "-m", "cli.main", "up", "--data-dir", str(folder)]
    with output.open("wb") as stdout, log.open("wb") as stderr:
        # In a session of its own: Ctrl-C is for this process, which then stops the stack in good order.
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True, env=environment
        )
    with log.open(encoding="utf-8", errors="replace") as said:
        try:
            yield RunningStack(process, folder, _wait_until_ready(process, output, lambda: _repeat(said, say)))
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                _stop(process, lambda: _repeat(said, say))


def _wait_until_ready(process: subprocess.Popen[bytes], output: Path, repeat: Callable[[], None]) -> dict[str, Any]:
    while not output.read_bytes().endswith(b"\n"):
        if process.poll() is not None:
            raise UnavailableError(
                "STACK_NOT_STARTED", f"the stack ended with status {process.returncode} before it was ready"
            )
        repeat()
        time.sleep(POLL_SECONDS)
    repeat()
    announcement: dict[str, Any] = json.loads(output.read_bytes())
    return announcement


def _stop(process: subprocess.Popen[bytes], repeat: Callable[[], None]) -> None:
    process.send_signal(signal.SIGINT)
    given_up_at = time.monotonic() + STOP_SECONDS
    while process.poll() is None:
        if time.monotonic() > given_up_at:
            process.kill()
        repeat()
        time.sleep(POLL_SECONDS)
    repeat()


def _repeat(log: TextIO, say: Callable[[str], None]) -> None:
    for line in log:
        say(f"  {line.rstrip()}")
