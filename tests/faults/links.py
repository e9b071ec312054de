"""The ways between processes and their servers, which see every request and can stop one exactly there.

A trap names a request. When it passes, it is either not let through, or let through and its answer kept back; then the
trap's action is taken and the connection is cut. So a process can be killed before and after each statement and record.
Connections can also go silent: what is sent is acknowledged, and arrives nowhere.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

PRODUCE = 0
OFFSET_COMMIT = 8


class When(Enum):
    """Where the trap closes: the request never arrives, or its answer never does."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True)
class Request:
    """A statement with its parameters and those before it in its transaction, or a Kafka request."""

    text: str
    data: bytes
    transaction: tuple[str, ...] = ()


@dataclass(eq=False)
class Trap:
    """Closes once. ``with_rows``: only on an answer that holds rows."""

    matches: Callable[[Request], bool]
    when: When
    action: Callable[[], None]
    with_rows: bool = False
    closed: asyncio.Event = field(default_factory=asyncio.Event)


class Link:
    """A port of its own in front of a server's. Subclasses read the protocol.

    Attributes:
        passable: while it is not set, requests wait on their way.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._silences: set[asyncio.Event] = set()
        self._for_good = False
        self.traps: list[Trap] = []
        self.passable = asyncio.Event()
        self.passable.set()
        self.port = 0

    async def open(self) -> None:
        """Listen."""
        self._listener = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Refuse connections and cut those that there are."""
        assert self._listener is not None
        self._listener.close()
        self.cut()
        await self._listener.wait_closed()

    def cut(self) -> None:
        """Break every connection."""
        for writer in self._open:
            writer.transport.abort()

    def silence(self, *, for_good: bool = False) -> None:
        """Let nothing more pass on the connections that there are, and tell nobody. New ones are as before.

        The server is told once the process has given a connection up; not even then if it is ``for_good``.
        """
        self._for_good = for_good
        for silence in self._silences:
            silence.set()

    async def closed(self, trap: Trap, seconds: float) -> None:
        """Set the trap and wait until it has closed."""
        self.traps.append(trap)
        try:
            async with asyncio.timeout(seconds):
                await trap.closed.wait()
        finally:
            if trap in self.traps:
                self.traps.remove(trap)

    def spring(self, trap: Trap) -> bool:
        """Close the trap; False when it did already."""
        if trap not in self.traps:
            return False
        self.traps.remove(trap)
        trap.action()
        trap.closed.set()
        return True

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        ends, silence = {writer, far_writer}, asyncio.Event()
        self._open |= ends
        self._silences.add(silence)
        try:
            passage = self._passage()
            tasks = [
                asyncio.create_task(passage.requests(reader, far_writer)),
                asyncio.create_task(passage.answers(far_reader, writer)),
                asyncio.create_task(silence.wait()),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if silence.is_set():
                # Each end has acknowledged what it sends, and learns nothing of what becomes of it.
                far = asyncio.create_task(_swallow(far_reader))
                await _swallow(reader)
                if not self._for_good:
                    far_writer.transport.abort()
                await far
        finally:
            self._open -= ends
            self._silences.remove(silence)
            for end in ends:
                end.transport.abort()

    def _passage(self) -> Passage:
        raise NotImplementedError


async def _swallow(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(2**16):
            pass


class Passage:
    """One connection. Each direction ends when either side has closed, or a trap has."""

    async def requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """From the process to the server."""
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._pass_requests(reader, writer)

    async def answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """From the server to the process."""
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._pass_answers(reader, writer)

    async def _pass_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def _pass_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class PostgresLink(Link):
    """In front of PostgreSQL, for clients that do not ask for TLS."""

    def _passage(self) -> Passage:
        return _PostgresPassage(self)


class _PostgresPassage(Passage):
    """Frames of the frontend/backend protocol, version 3: a type, a length, and the rest."""

    COMMITS: ClassVar = ("COMMIT", "ROLLBACK")

    def __init__(self, link: PostgresLink) -> None:
        self._link = link
        self._statements: dict[bytes, str] = {}
        self._transaction: list[str] = []
        self._waiting: Trap | None = None

    async def _pass_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(4)
        writer.write(head + await reader.readexactly(struct.unpack("!I", head)[0] - 4))
        while True:
            kind, frame, body = await _postgres_frame(reader)
            request = self._request(kind, body)
            if request is not None:
                trap = next((trap for trap in self._link.traps if trap.matches(request)), None)
                if trap is not None and trap.when is When.AFTER:
                    self._waiting = trap
                elif trap is not None and self._link.spring(trap):
                    return
            writer.write(frame)
            await writer.drain()

    async def _pass_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept: list[bytes] = []
        has_rows = False
        while True:
            kind, frame, _ = await _postgres_frame(reader)
            kept.append(frame)
            has_rows |= kind == b"D"
            trap = self._waiting
            if trap is not None and kind != b"Z":
                continue
            if trap is not None and (has_rows or not trap.with_rows) and self._link.spring(trap):
                return
            self._waiting, has_rows = None, False
            writer.write(b"".join(kept))
            kept.clear()
            await writer.drain()

    def _request(self, kind: bytes, body: bytes) -> Request | None:
        """The statement that runs now, if one does."""
        if kind == b"P":
            name, sql, _ = body.split(b"\x00", 2)
            self._statements[name] = sql.decode()
            return None
        if kind == b"B":
            _, name, parameters = body.split(b"\x00", 2)
            text, data = self._statements.get(name, ""), parameters
        elif kind == b"Q":
            text, data = body.rstrip(b"\x00").decode(), b""
        else:
            return None
        request = Request(text, data, tuple(self._transaction))
        if text.startswith(("BEGIN", *self.COMMITS)):
            self._transaction.clear()
        else:
            self._transaction.append(text)
        return request


async def _postgres_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes, bytes]:
    head = await reader.readexactly(5)
    body = await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
    return head[:1], head + body, body


class KafkaLink(Link):
    """In front of a broker that tells its clients this port. A request's text is the number of its kind."""

    def _passage(self) -> Passage:
        return _KafkaPassage(self)


class _KafkaPassage(Passage):
    """Frames of a length, the kind of request, its version and its number; answers come with the number."""

    def __init__(self, link: KafkaLink) -> None:
        self._link = link
        self._waiting: dict[int, Trap] = {}

    async def _pass_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await _kafka_frame(reader)
            kind, _, number = struct.unpack("!hhi", frame[4:12])
            request = Request(str(kind), frame)
            trap = next((trap for trap in self._link.traps if trap.matches(request)), None)
            if trap is not None and trap.when is When.AFTER:
                self._waiting[number] = trap
            elif trap is not None and self._link.spring(trap):
                return
            await self._link.passable.wait()
            writer.write(frame)
            await writer.drain()

    async def _pass_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await _kafka_frame(reader)
            trap = self._waiting.pop(struct.unpack("!i", frame[4:8])[0], None)
            if trap is not None and self._link.spring(trap):
                return
            writer.write(frame)
            await writer.drain()


async def _kafka_frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack("!i", head)[0])
