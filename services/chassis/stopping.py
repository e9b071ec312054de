"""How a process ends within a stated time, whatever its database, its broker or a provider do.

From the signal on, what is in hand has ``shutdown_seconds``. Then tasks are cancelled and connections closed, each in
bounded time. ``CLOSING_SECONDS`` later the process ends as it is: what it had under a lease is taken over after that.
Who has done all of it ends by ``leave``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from services.chassis.observability import flush, get_logger

CLOSING_SECONDS = 3.0
"""From the end of ``shutdown_seconds`` to that of the process, in any case."""
EXIT_STATUS = 70
"""EX_SOFTWARE of sysexits.h: something did not end."""

_PATIENCE = (1.0, 0.5, 0.5)
"""Seconds after each cancellation; the first are for what gives something back."""

_log = get_logger(__name__)


async def pause(seconds: float) -> None:
    """Sleep between two tries. In a task that is cancelled raise that: a library may have made another error of it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
    await asyncio.sleep(seconds)


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel the tasks and wait until they are over; what they raise is dropped.

    They are cancelled again after a while: what gives something back may wait for a server that does not answer. One
    that outlives the last time as well is left behind, and named.
    """
    left = {task for task in tasks if not task.done()}
    for seconds in _PATIENCE if left else ():
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=seconds)
        if not left:
            break
    for task in set(tasks) - left:
        if not task.cancelled():
            task.exception()
    for task in left:
        _log.warning("task_left_behind", task=repr(task))


def stop_at_signal(stop: Callable[[], None], shutdown_seconds: float) -> None:
    """Call ``stop`` in the running loop at the first SIGTERM or SIGINT; the process ends in time after it."""
    loop = asyncio.get_running_loop()

    # Not the loop's own handlers: those wait for a loop that is held up.
    def handle(*_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        end_in_time(shutdown_seconds)
        loop.call_soon_threadsafe(stop)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def end_in_time(shutdown_seconds: float) -> None:
    """End the process ``CLOSING_SECONDS`` after these with a line and ``EXIT_STATUS``, unless it has ended by then."""
    last_resort = threading.Timer(shutdown_seconds + CLOSING_SECONDS, _end_as_it_is)
    last_resort.daemon = True
    last_resort.start()


def _end_as_it_is() -> None:
    _log.error("shutdown_overran", remedy="see what did not answer; what was in hand is taken over after its lease")
    os._exit(EXIT_STATUS)


def leave() -> NoReturn:
    """End the process with status 0 once what is gathered of telemetry is sent.

    The end of the interpreter waits for threads without a limit, and in a part of it ``end_in_time`` has no clock.
    """
    try:
        flush()
        sys.stdout.flush()
    finally:
        os._exit(0)
