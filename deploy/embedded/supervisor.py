"""Keeps a table of processes alive: starts it stage by stage, restarts what dies, stops it in reverse order.

A process that was ready once is started again for ever, with growing pauses. Before that, three failures end the start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded.process import ProcessSpec, server_failed
from services.chassis.kernel.errors import ConfigurationError

POLL_SECONDS = 0.1
LOG_BYTES = 16 * 2**20
LOG_CHECK_SECONDS = 30.0
FIRST_START_ATTEMPTS = 3

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before a restart: ``first``, doubled up to ``most``; ``first`` again after a life of ``reset_after``."""

    first: float = 0.5
    most: float = 30.0
    reset_after: float = 60.0

    def seconds(self, failures: int) -> float:
        """The pause after so many failures in a row, at least one."""
        return float(min(self.most, self.first * 2 ** min(failures - 1, 16)))


class Supervisor:
    """The processes of one stack.

    Args:
        stages: a stage starts when all of the one before are ready.
        logs: folder for ``<role>.log``; a log over 16 MB becomes ``<role>.log.1``.
        marks: environment variables added to every process.
        restarted: called when, after the start, a process is ready again under another id.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[ProcessSpec]],
        *,
        logs: Path,
        marks: Mapping[str, str],
        restarted: Callable[[], None],
        backoff: Backoff,
    ) -> None:
        self._stages: list[list[_Keeper]] = []
        for stage in reversed(stages):
            later = [keeper for keepers in self._stages for keeper in keepers]
            keepers = [
                _Keeper(
                    spec,
                    logs / f"{spec.role}.log",
                    marks=marks,
                    hidden_from=later if spec.hidden else [],
                    restarted=self._tell_restarted,
                    backoff=backoff,
                )
                for spec in stage
            ]
            self._stages.insert(0, keepers)
        self._restarted = restarted
        self._started = False
        self._log_watch: asyncio.Task[None] | None = None

    @property
    def pids(self) -> dict[str, int]:
        """Role to process id, for all that were started."""
        return {keeper.spec.role: keeper.pid for stage in self._stages for keeper in stage if keeper.pid is not None}

    async def start(self) -> None:
        """Return when every process is ready.

        Raises:
            CauceError: one could not be made ready. Call ``stop`` even then, and after a cancellation.
        """
        self._log_watch = asyncio.create_task(self._bound_logs())
        for stage in self._stages:
            for keeper in stage:
                keeper.start()
            await asyncio.gather(*(keeper.first_ready() for keeper in stage))
        self._started = True

    async def stop(self) -> None:
        """Stop everything, the last stage first, in bounded time."""
        if self._log_watch is not None:
            await _cancel(self._log_watch)
        for stage in reversed(self._stages):
            await asyncio.gather(*(keeper.stop() for keeper in stage))

    def _tell_restarted(self) -> None:
        if self._started:
            try:
                self._restarted()
            except OSError as error:  # a full disk is no reason to end what runs
                _log.error("the new process id could not be published: %s", error)

    async def _bound_logs(self) -> None:
        while True:
            await asyncio.sleep(LOG_CHECK_SECONDS)
            for stage in self._stages:
                for keeper in stage:
                    await asyncio.to_thread(bound_log, keeper.log)


class _Keeper:
    """One process, again and again."""

    def __init__(
        self,
        spec: ProcessSpec,
        log: Path,
        *,
        marks: Mapping[str, str],
        hidden_from: Sequence[_Keeper],
        restarted: Callable[[], None],
        backoff: Backoff,
    ) -> None:
        self.spec = spec
        self.log = log
        self.pid: int | None = None
        self._marks = marks
        self._hidden_from = hidden_from
        self._restarted = restarted
        self._backoff = backoff
        self.process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._was_ready = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep())

    async def first_ready(self) -> None:
        """Wait for the first readiness; raise what makes it impossible."""
        if self._task is None:
            raise RuntimeError("not started")
        ready = asyncio.create_task(self._was_ready.wait())
        try:
            await asyncio.wait(
                (ready, self._task), timeout=self.spec.ready_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ready.cancel()
        if self._task.done():
            self._task.result()
        if not self._was_ready.is_set():
            raise server_failed(self.spec.role, f"was not ready after {self.spec.ready_seconds:.0f} s", self.log)

    async def stop(self) -> None:
        if self._task is not None:
            await _cancel(self._task)
        await self._end_process()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            fault = await self._live()
            if loop.time() - began >= self._backoff.reset_after:
                failures = 0
            failures += 1
            if not self._was_ready.is_set() and failures == FIRST_START_ATTEMPTS:
                raise server_failed(self.spec.role, fault, self.log)
            pause = self._backoff.seconds(failures)
            _log.warning("%s %s; starting it again in %.1f s", self.spec.role, fault, pause)
            await asyncio.sleep(pause)

    async def _live(self) -> str:
        """Start the process and stay with it to its end. Return what ended it, in words."""
        try:
            with self._hidden():
                process = await self._spawn()
                await self._become_ready(process)
            fault = _ending(await process.wait())
        except ConfigurationError as error:
            if not self._was_ready.is_set():
                raise
            fault = f"cannot start: {error}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is said, and the process is started again
            fault = f"failed: {type(error).__name__}: {error}"
        await self._end_process()
        return fault

    async def _spawn(self) -> asyncio.subprocess.Process:
        launch = await asyncio.to_thread(self.spec.prepare)
        bound_log(self.log)
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal is for the supervisor, which stops the others in order.
            self.process = await asyncio.create_subprocess_exec(
                *launch.arguments(self.spec.stop[0][0]),
                env={**launch.environment, **self._marks},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self.process.pid
        return self.process

    @contextmanager
    def _hidden(self) -> Iterator[None]:
        """Pause the processes that must not meet this one before it is settled."""
        paused = [keeper.process for keeper in self._hidden_from if keeper.process is not None]
        try:
            for process in paused:
                _signal_group(process.pid, signal.SIGSTOP)
            yield
        finally:
            for process in paused:
                _signal_group(process.pid, signal.SIGCONT)

    async def _become_ready(self, process: asyncio.subprocess.Process) -> None:
        """Return when it is ready and settled, or has ended."""
        while not await self.spec.ready(process.pid):
            if process.returncode is not None:
                return
            await asyncio.sleep(POLL_SECONDS)
        await self.spec.settle()
        if self._was_ready.is_set():
            _log.info("%s is up again (process %s)", self.spec.role, self.pid)
            self._restarted()
        else:
            _log.info("%s is up (process %s)", self.spec.role, self.pid)
            self._was_ready.set()

    async def _end_process(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        for stop_signal, seconds in self.spec.stop:
            with suppress(ProcessLookupError):
                process.send_signal(stop_signal)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await process.wait()
                break
        else:
            _log.warning("%s (process %s) does not stop: killing it", self.spec.role, process.pid)
        # Also what the process started itself: it is in the same group.
        _signal_group(process.pid, signal.SIGKILL)
        await process.wait()


def bound_log(log: Path) -> None:
    """Keep a log that grew too long as ``<log>.1`` and empty it. Its writer appends, so it need not know."""
    if log.exists() and log.stat().st_size > LOG_BYTES:
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)


def _ending(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


async def _cancel(task: asyncio.Future[None]) -> None:
    """Cancel and wait. What it raised, its own waiters have seen."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


def _signal_group(pid: int, signum: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signum)
