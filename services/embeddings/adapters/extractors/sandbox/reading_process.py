"""What happens in the process that reads one document: it confines itself, reads, answers and ends."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.registry import read_document, render_page
from services.embeddings.adapters.extractors.sandbox.frames import FrameWriter
from services.embeddings.domain.errors import ExtractionError

EXIT_OUT_OF_MEMORY = 3
_MAX_OPEN_FILES = 64
_PR_SET_PDEATHSIG = 1
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REFUSED_EVENTS = (
    "ctypes.dlopen",
    "os.chmod",
    "os.chown",
    "os.exec",
    "os.fork",
    "os.kill",
    "os.link",
    "os.mkdir",
    "os.posix_spawn",
    "os.putenv",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.spawn",
    "os.symlink",
    "os.system",
    "os.truncate",
    "os.utime",
    "pty.spawn",
    "shutil.",
    "socket.",
    "subprocess.",
)


def run(work: socket.socket, parent: int) -> NoReturn:
    """Read the document that ``work`` asks for, answer there, and end this process, if not ``parent`` ended before."""
    status = 1
    try:
        _die_with(parent)
        request = json.loads(work.makefile("rb").readline())
        limits = ExtractionLimits(**request.pop("limits"))
        writer = FrameWriter(work.makefile("wb"))
        writer.started()
        _confine(limits, keep=work.fileno())
        _answer(writer, request, limits)
        status = 0
    except MemoryError:
        status = EXIT_OUT_OF_MEMORY
    finally:
        os._exit(status)


def _answer(writer: FrameWriter, request: dict[str, Any], limits: ExtractionLimits) -> None:
    try:
        path, options, shown = Path(request.pop("path")), frozenset(request.pop("options")), request.pop("shown", None)
        if shown is None:
            actual, pages = read_document(path, **request, limits=limits, options=options)
        else:
            actual, page = render_page(path, **request, **shown, limits=limits, options=options)
            pages = iter([page])
        for page in pages:
            writer.page(page)
    except ExtractionError as error:
        writer.error(error)
    else:
        writer.done(actual)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _confine(limits: ExtractionLimits, *, keep: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
    with contextlib.suppress(OSError):  # when the machine runs out of memory, this process is the one to go
        Path("/proc/self/oom_score_adj").write_text("1000")
    _lower(resource.RLIMIT_AS, _address_space() + limits.memory_bytes)
    _lower(resource.RLIMIT_CPU, limits.cpu_seconds, hard=limits.cpu_seconds + 1)  # SIGXCPU first: it tells
    _lower(resource.RLIMIT_FSIZE, 0)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NPROC, 0)
    _lower(resource.RLIMIT_NOFILE, _MAX_OPEN_FILES)
    sys.addaudithook(_refuse)


def _address_space() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _lower(kind: int, value: int, *, hard: int | None = None) -> None:
    _, allowed = resource.getrlimit(kind)
    wanted = value if hard is None else hard
    hard = wanted if allowed == resource.RLIM_INFINITY else min(wanted, allowed)
    with contextlib.suppress(OSError, ValueError):  # macOS does not limit address space
        resource.setrlimit(kind, (min(value, hard), hard))


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """A second fence around Python code; what native code may do is fenced by the limits and the network namespace."""
    if event.startswith(_REFUSED_EVENTS) or (event == "open" and (arguments[2] or 0) & _WRITE_FLAGS):
        raise PermissionError(f"{event} is refused while a document is read")
