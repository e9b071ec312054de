"""How a process ends."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from deploy.embedded.process import ProcessSpec
from services.chassis import stopping
from services.chassis.schedule import every
from services.chassis.settings import ShutdownSettings
from services.chassis.stopping import CLOSING_SECONDS, EXIT_STATUS, end


async def test_a_loop_ends_even_where_a_library_makes_another_error_of_its_cancellation() -> None:
    begun = asyncio.Event()

    async def action() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise TimeoutError from None

    loop = asyncio.create_task(every(0.0, "action", action))
    await begun.wait()
    await end(loop)
    assert loop.cancelled()


async def test_what_does_not_end_is_left_behind_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_PATIENCE", (0.01, 0.01))
    released = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    with capture_logs() as said:
        await end(task)
    assert [line["event"] for line in said] == ["task_left_behind"]
    assert "stubborn" in said[0]["task"]
    released.set()
    await task


async def test_what_was_over_before_and_what_it_raised_are_no_news() -> None:
    async def fail() -> None:
        raise KeyError("unexpected")

    task = asyncio.create_task(fail())
    await asyncio.wait({task})
    await end(task)
    await end()


HELD_UP = """
import asyncio, os, signal, time
from services.chassis import stopping
from services.chassis.observability.logs import configure_logs

stopping.CLOSING_SECONDS = 0.1

async def main():
    stopping.stop_at_signal(lambda: None, 0.1)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    while True:
        time.sleep(0.01)

configure_logs("test")
asyncio.run(main())
"""


def test_a_process_that_is_held_up_ends_with_a_line_and_a_status_of_its_own() -> None:
    ended = subprocess.run([sys.executable, "-c", HELD_UP], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == EXIT_STATUS
    assert json.loads(ended.stderr)["event"] == "shutdown_overran"


LEFT = """
import sys, threading
from services.chassis.observability import setup
from services.chassis.stopping import leave

setup("test")
threading.Thread(target=threading.Event().wait).start()
print("all is done")
leave()
"""


def test_a_process_that_has_done_all_ends_whatever_a_thread_of_it_still_waits_for() -> None:
    ended = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "all is done\n", "")


def test_a_process_ends_before_the_supervisor_kills_it() -> None:
    ((stop_signal, seconds),) = ProcessSpec.__dataclass_fields__["stop"].default
    assert stop_signal == signal.SIGTERM
    assert ShutdownSettings().shutdown_seconds + CLOSING_SECONDS < seconds
