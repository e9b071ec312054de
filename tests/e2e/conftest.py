"""One embedded stack for the end-to-end tests, run by the real command and asked by the command's own code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.support.broker import EMBEDDED, running_broker
from tests.support.otlp import Collector, running_collector
from tests.support.postgres import temporary_folder

# A killed worker's file is taken over after this.
LEASE_SECONDS = "5"
CAUCE = (sys.executable, "-P", "-m", "cli.main")


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit status, the JSON lines that it printed, and what it said to people."""

    status: int
    lines: list[dict[str, Any]]
    said: str


class CauceStack:
    """``cauce up`` on one data folder, and commands that find it there."""

    def __init__(self, data_dir: Path, environment: Mapping[str, str]) -> None:
        self.data_dir = data_dir
        self._environment = {**os.environ, "CAUCE_LEASE_SECONDS": LEASE_SECONDS, **environment}
        self._log = data_dir.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> dict[str, Any]:
        """Start it and return its announcement."""
        command = (*CAUCE, "up", "--data-dir", str(self.data_dir))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=self._environment)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        announcement: dict[str, Any] = json.loads(line)
        return announcement

    def stop(self) -> int:
        """Stop it as Ctrl-C does and return its exit status."""
        assert self._process is not None
        with self._process as process:
            process.send_signal(signal.SIGINT)
        return process.returncode

    @property
    def state(self) -> dict[str, Any]:
        """What ``stack.json`` says now."""
        state: dict[str, Any] = json.loads((self.data_dir / "stack.json").read_text())
        return state

    @property
    def log(self) -> str:
        """What ``cauce up`` said."""
        return self._log.read_text()

    def cauce(self, *arguments: object) -> Outcome:
        """Run a command with ``--json`` on this stack, in this process: another takes a second to start."""
        command = [*map(str, arguments), "--json", "--data-dir", str(self.data_dir)]
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        return Outcome(done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr)


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """Receives the stack's traces."""
    with running_collector() as collector:
        yield collector


@pytest.fixture(scope="session")
def stack(collector: Collector, broker_kind: str) -> Iterator[CauceStack]:
    """The stack, started once, with a broker that nobody else uses. A test that stops it starts it again."""
    with ExitStack() as resources:
        folder = resources.enter_context(temporary_folder())
        environment = dict(collector.environment)
        if broker_kind != EMBEDDED:
            environment |= resources.enter_context(running_broker(broker_kind)).environment
        stack = CauceStack(folder / "stack", environment)
        stack.start()
        yield stack
        assert stack.stop() == 0, stack.log
