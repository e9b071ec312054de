"""The data folder of a stack: one stack at a time, what it announces, and what a killed one left running."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from services.chassis.kernel.errors import ConfigurationError, ConflictError

STATE_FILE = "stack.json"
PORT_BASE = "port_base"
MARK = "CAUCE_STACK"
LEFTOVER_SECONDS = 12.0

_log = logging.getLogger(__name__)


class StackFolder:
    """The folder, made if missing."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.logs = self.path / "logs"
        self.objects = self.path / "objects"
        self._state = self.path / STATE_FILE

    @property
    def marks(self) -> dict[str, str]:
        """Environment by which a process is known to belong to this folder's stack."""
        return {MARK: str(self.path.resolve())}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder. The lock is the kernel's: it ends with the holder, so what the file says is never stale.

        Raises:
            ConflictError: ``STACK_RUNNING``.
            ConfigurationError: ``DATA_DIR_UNUSABLE``.
        """
        try:
            for folder in (self.path, self.logs, self.objects):
                folder.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "stack.lock").open("a+")
        except OSError as error:
            raise ConfigurationError(
                "DATA_DIR_UNUSABLE",
                f"the data folder cannot be used: {error.strerror}",
                where=str(self.path),
                remedy="choose another one with --data-dir",
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                lock.seek(0)
                raise ConflictError(
                    "STACK_RUNNING",
                    f"a stack already runs on this folder, as process {lock.read().strip() or 'unknown'}",
                    where=str(self.path),
                    remedy="use it, stop it, or choose another folder with --data-dir",
                ) from error
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield

    def remembered_port_base(self) -> int | None:
        """The first port of the last start, if there was one."""
        try:
            base = json.loads(self._state.read_text(encoding="utf-8"))[PORT_BASE]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return base if isinstance(base, int) else None

    def write(self, port_base: int, announcement: Mapping[str, Any]) -> None:
        """Replace the state atomically. An empty announcement says that nothing runs."""
        unfinished = self._state.with_name(f"{STATE_FILE}.new")
        unfinished.write_text(json.dumps({PORT_BASE: port_base, **announcement}) + "\n", encoding="utf-8")
        unfinished.replace(self._state)

    def stop_leftovers(self) -> None:
        """Stop what runs on behalf of this folder. For the holder of the folder, before it starts anything.

        The database server is left to its own start, which knows how to stop one in good order.
        """
        leftovers = [process for process in psutil.process_iter() if self._owns(process)]
        for act in (psutil.Process.terminate, psutil.Process.kill):
            if not leftovers:
                return
            _log.warning("processes of a former run are still there: stopping %s", [it.pid for it in leftovers])
            for leftover in leftovers:
                with suppress(psutil.NoSuchProcess):
                    act(leftover)
            _, leftovers = psutil.wait_procs(leftovers, timeout=LEFTOVER_SECONDS)

    def _owns(self, process: psutil.Process) -> bool:
        try:
            return (
                process.pid != os.getpid()
                and process.name() != "postgres"
                and bool(process.environ().get(MARK) == self.marks[MARK])
            )
        except (psutil.Error, OSError):
            return False
