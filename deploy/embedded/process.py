"""A process of the embedded stack: how it is launched, known to be ready, and stopped."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from services.chassis.kernel.errors import ConfigurationError, UnavailableError

LOOPBACK = "127.0.0.1"
TAIL_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Account:
    """A system account to run as."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Launch:
    """What to execute: an absolute path with its arguments, the whole environment, and the account (None: our own)."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    account: Account | None = None

    def arguments(self, death_signal: signal.Signals) -> list[str]:
        """The command line, through the launcher that ties the process to the calling one."""
        account = "-" if self.account is None else f"{self.account.uid}:{self.account.gid}"
        launcher = str(Path(__file__).with_name("launcher.py"))
        return [sys.executable, "-I", "-S", launcher, str(os.getpid()), str(int(death_signal)), account, *self.command]


async def nothing_to_settle() -> None:
    """For a process after which nothing is to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One row of the process table.

    Attributes:
        role: its name in messages, logs and ``stack.json``.
        prepare: called before every start; blocks; removes what a former run left and says what to execute.
        ready: whether the process of this id can be used now.
        settle: called each time it became ready, before anything that depends on it starts.
        hidden: whether later stages are paused while it starts again, so that they meet it only when it is settled.
        ready_seconds: how long the first readiness may take.
        stop: signals to send, each with the seconds to wait after it. SIGKILL follows the last.
    """

    role: str
    prepare: Callable[[], Launch]
    ready: Callable[[int], Awaitable[bool]]
    settle: Callable[[], Awaitable[None]] = nothing_to_settle
    hidden: bool = False
    ready_seconds: float = 60.0
    stop: tuple[tuple[signal.Signals, float], ...] = ((signal.SIGTERM, 12.0),)


def require_free_port(port: int, role: str) -> None:
    """Refuse a port that cannot be listened on.

    Raises:
        ConfigurationError: ``PORT_TAKEN``.
    """
    fault = port_fault(port)
    if fault is not None:
        raise ConfigurationError(
            "PORT_TAKEN",
            f"{role} cannot listen on {LOOPBACK}:{port}: {fault}",
            where=str(port),
            remedy="stop what listens there, or choose other ports with --port-base",
        )


def port_fault(port: int) -> str | None:
    """Why nobody can listen on the port now; None when one can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def tail(log: Path) -> str:
    """The last part of a log, for an error message."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace").strip()


def server_failed(role: str, what: str, log: Path) -> UnavailableError:
    """The error for a process that did not come up, with the end of its log."""
    return UnavailableError(
        "SERVER_FAILED", f"{role} {what}; the end of its log:\n{tail(log)}", where=str(log), remedy=f"read {log}"
    )
