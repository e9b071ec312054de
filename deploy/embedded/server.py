"""Runs one server without a supervisor, from synchronous code: what tests and benchmarks need."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from deploy.embedded.process import ProcessSpec, server_failed

POLL_SECONDS = 0.05

Result = TypeVar("Result")


def run_blocking(work: Awaitable[Result]) -> Result:
    """Await to the end on a loop of its own. Unlike ``asyncio.run`` it leaves the current loop alone."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


class EmbeddedServer:
    """A server started and stopped by hand. Not for use inside a running event loop.

    On Linux it ends with the thread that started it: start it from one that stays.
    """

    spec: ProcessSpec
    log: Path

    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._process is None:
            raise RuntimeError(f"{self.spec.role} is not running")
        return self._process.pid

    def start(self) -> None:
        """Start and return when the server can be used.

        Raises:
            ConfigurationError: what it needs is missing or taken.
            UnavailableError: ``SERVER_FAILED`` with the end of its log.
        """
        launch = self.spec.prepare()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                launch.arguments(self.spec.stop[0][0]),
                env=dict(launch.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait_ready(self._process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop, in bounded time. Nothing happens when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        for stop_signal, seconds in self.spec.stop:
            process.send_signal(stop_signal)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue
            return
        process.kill()
        process.wait()

    def kill(self) -> None:
        """End it without warning, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.spec.ready_seconds
        while not run_blocking(self.spec.ready(process.pid)):
            if process.poll() is not None:
                raise server_failed(self.spec.role, f"ended with status {process.returncode}", self.log)
            if time.monotonic() > deadline:
                raise server_failed(self.spec.role, f"was not ready after {self.spec.ready_seconds:.0f} s", self.log)
            time.sleep(POLL_SECONDS)
