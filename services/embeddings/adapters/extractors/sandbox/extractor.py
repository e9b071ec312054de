"""The worker's side of the sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.sandbox.frames import FrameReader, ProtocolError
from services.embeddings.adapters.extractors.sandbox.reading_process import EXIT_OUT_OF_MEMORY
from services.embeddings.domain.document import ExtractedDocument, Page, PageImage
from services.embeddings.domain.errors import ExtractionError, ResourceLimitError

_ZYGOTE = "services.embeddings.adapters.extractors.sandbox.zygote"
# Long enough to import every reader on a machine that has other things to do.
_START_SECONDS = 120.0


class SandboxError(Exception):
    """The sandbox itself failed; the document may be fine."""


class SandboxedExtractor:
    """A ``DocumentExtractor`` that forks a process for each document from one that has imported every reader.

    That one is started at the first document, started again if it dies, and ends with this process.
    Cancelling or timing out kills the document's process.
    """

    def __init__(self, limits: ExtractionLimits, options: Iterable[str] = ()) -> None:
        """``options`` choose formats that are not the usual ones: ``pdfium`` reads PDF without PyMuPDF."""
        self._limits = limits
        self._options = sorted(options)
        self._zygote: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    async def extract(self, path: Path, *, name: str, media_type: str) -> ExtractedDocument:
        """Read the document.

        Raises:
            ExtractionError: the document cannot be read; ResourceLimitError says which limit it met.
            SandboxError: the sandbox could not be used.
        """
        return await self._read({"path": str(path), "name": name, "media_type": media_type})

    async def render(self, path: Path, *, name: str, media_type: str, number: int, size: int) -> PageImage:
        """The page of that number as a PNG whose longer side has at most ``size`` pixels.

        Raises:
            ExtractionError: as ``extract``; ``PAGE_NOT_FOUND``; ``NO_PAGES`` in a format whose pages cannot be shown.
            SandboxError: the sandbox could not be used.
        """
        shown = {"number": number, "size": size}
        document = await self._read({"path": str(path), "name": name, "media_type": media_type, "shown": shown})
        match document.pages:
            case (Page(images=(image,)),):
                return image
        raise SandboxError("the reading process did not show one page")

    async def _read(self, request: dict[str, Any]) -> ExtractedDocument:
        request = {**request, "limits": asdict(self._limits), "options": self._options}
        async with self._process() as (stream, writer, watch):
            writer.write(json.dumps(request).encode() + b"\n")
            reader = FrameReader(stream, self._limits)
            try:
                async with asyncio.timeout(_START_SECONDS):
                    await reader.started()
            except TimeoutError:
                raise SandboxError(f"no reading process started within {_START_SECONDS:g} s") from None
            except ProtocolError:
                raise SandboxError("no reading process could be started") from None
            try:
                async with asyncio.timeout(self._limits.wall_seconds):
                    return await self._document(reader, watch)
            except TimeoutError:
                seconds = self._limits.wall_seconds
                raise ResourceLimitError("wall_seconds", f"the document takes longer than {seconds:g} s") from None

    async def aclose(self) -> None:
        """End every process."""
        if self._zygote is not None:
            process, control = self._zygote
            self._zygote = None
            control.close()
            await asyncio.to_thread(process.wait)

    @asynccontextmanager
    async def _process(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, socket.socket]]:
        """A new reading process, which is killed at the end of the context unless it has ended."""
        work, its_work = socket.socketpair()
        watch, its_watch = socket.socketpair()
        with watch:
            watch.setblocking(False)
            with its_work, its_watch:
                socket.send_fds(self._control(), [b"\0"], [its_work.fileno(), its_watch.fileno()])
            stream, writer = await asyncio.open_unix_connection(sock=work)
            try:
                yield stream, writer, watch
            finally:
                writer.close()

    def _control(self) -> socket.socket:
        if self._zygote is not None:
            process, control = self._zygote
            if process.poll() is None:
                return control
            control.close()
        control, its_control = socket.socketpair()
        with its_control:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", _ZYGOTE, str(its_control.fileno())],
                pass_fds=[its_control.fileno()],
                start_new_session=True,  # a Ctrl-C in the terminal is for the worker alone
                # Nothing else of the environment: a document must not find keys or addresses there.
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"},
            )
        self._zygote = process, control
        return control

    async def _document(self, reader: FrameReader, watch: socket.socket) -> ExtractedDocument:
        try:
            return await reader.document()
        except ProtocolError as error:
            report = await asyncio.get_running_loop().sock_recv(watch, 4096)
            if not report:
                raise SandboxError("the process that forks the reading processes died") from error
            raise self._how_it_ended(**json.loads(report)) from error

    def _how_it_ended(self, exit: int, peak_kib: int) -> Exception:
        if exit == -signal.SIGXCPU:
            seconds = self._limits.cpu_seconds
            return ResourceLimitError("cpu_seconds", f"the document takes more than {seconds:g} s of processor time")
        # Native code that gets no memory ends by one signal or another, after it has taken nearly all that it may.
        starved = peak_kib * 1024 > self._limits.memory_bytes / 2
        if exit == EXIT_OUT_OF_MEMORY or (exit < 0 and starved):
            mib = self._limits.memory_bytes // 1024**2
            return ResourceLimitError("memory_bytes", f"the document takes more than {mib} MiB of memory")
        if exit == -signal.SIGKILL:  # no document does that: the machine had no memory left, or somebody did it
            return SandboxError("the reading process was killed")
        if exit < 0:
            return ExtractionError("CORRUPT", f"the document makes its reader crash ({signal.Signals(-exit).name})")
        return SandboxError(f"the reading process ended with status {exit}")
