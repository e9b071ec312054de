"""Connections that end when they have gone silent: packets vanish, with nobody saying that it is over.

The network's own means find out where nobody acknowledges what is sent. Where somebody in between does, only the server
knows: while a statement has no answer, it is asked over a new connection whether it works on it. So no statement needs
a limit that fits the largest one, and none waits for an answer that does not come.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

import asyncpg

from services.chassis.observability.logs import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY

SESSION: Mapping[str, str] = {
    # Whoever froze or vanished within a transaction holds its rows, which claims pass by, no longer than this.
    "idle_in_transaction_session_timeout": "60s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
"""Settings of every session of a service. Where there is no TCP the last three are of no effect."""
SOCKET: Mapping[str, int] = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 30_000,
}
"""The same for our end, in seconds, and in milliseconds how long what was sent may stay unacknowledged."""
SILENCE_SECONDS = 5.0
"""How often the server is asked what became of a statement. If it waits for us twice in a row, nothing passes."""
ASK_SECONDS = 5.0
"""The longest wait for such an answer; none is like one that it does not work."""

_BYTES_MOVED = slice(120, 136)
"""Where they are in Linux's ``struct tcp_info``: tcpi_bytes_acked and tcpi_bytes_received."""
_WORKS = "SELECT wait_event_type IS DISTINCT FROM 'Client' FROM pg_stat_activity WHERE pid = $1"
_END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Client'"

_log = get_logger(__name__)


def _watched_over(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The driver's method, with ``Connection.watched`` around it."""

    @wraps(method)
    async def watched_over(connection: Connection, *arguments: Any, **options: Any) -> Any:
        with connection.watched():
            return await method(connection, *arguments, **options)

    return watched_over


class Connection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that a silent network ends as one that is cut, for the statement under way as for the next."""

    __slots__ = ("_on_silence", "_url")

    def __init__(self, protocol: Any, transport: Any, *arguments: Any) -> None:
        super().__init__(protocol, transport, *arguments)
        self._url: str | None = None
        self._on_silence: Callable[[], None] = lambda: None
        _keep_alive(transport.get_extra_info("socket"))
        # The driver would wait for ever for room to write on a connection that is no more.
        self.add_termination_listener(lambda _: protocol.resume_writing())

    def watch(self, url: str, on_silence: Callable[[], None] = lambda: None) -> None:
        """From now on watch over each statement, asking the server at the address."""
        self._url = url
        self._on_silence = on_silence

    execute = _watched_over(asyncpg.Connection.execute)
    fetch = _watched_over(asyncpg.Connection.fetch)
    fetchrow = _watched_over(asyncpg.Connection.fetchrow)
    fetchval = _watched_over(asyncpg.Connection.fetchval)
    copy_records_to_table = _watched_over(asyncpg.Connection.copy_records_to_table)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """End the connection if it goes silent meanwhile. Whoever waits for it gets a ConnectionDoesNotExistError."""
        if self._url is None:
            yield
            return
        watching: list[asyncio.Task[None]] = []
        timer = self._loop.call_later(
            SILENCE_SECONDS, lambda: watching.append(self._loop.create_task(self._until_silent()))
        )
        try:
            yield
        finally:
            timer.cancel()
            for task in watching:
                task.cancel()

    async def _until_silent(self) -> None:
        """Ask the server time and again, unless bytes pass: of rows on their way, or of a great answer."""
        moved, doubted = b"", False
        while True:
            before, moved = moved, self._moved()
            doubted &= before == moved
            if await self._works(end=doubted):
                doubted = False
            elif doubted:
                _log.warning("database_connection_silent", server_process=self.get_server_pid())
                self._on_silence()
                self._transport.abort()
                return
            else:
                doubted = True
            await asyncio.sleep(SILENCE_SECONDS)

    def _moved(self) -> bytes:
        """Changes with each byte that the other end has acknowledged or sent, where the system says so."""
        with suppress(AttributeError, OSError):
            end = self._transport.get_extra_info("socket")
            told: bytes = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_MOVED.stop)
            return told[_BYTES_MOVED]
        return b""

    async def _works(self, *, end: bool) -> bool:
        """Whether the server works on the statement. ``end``: have it end its side if not, with the locks it holds."""
        try:
            asking = await asyncpg.connect(self._url, timeout=ASK_SECONDS, command_timeout=ASK_SECONDS)
            try:
                works = bool(await asking.fetchval(_WORKS, self.get_server_pid()))
                if not works and end:
                    await asking.execute(_END, self.get_server_pid())
                return works
            finally:
                asking.terminate()
        except (asyncpg.InsufficientResourcesError, asyncpg.InvalidAuthorizationSpecificationError):
            return True  # it answers, and does not let us in to see
        except (*DATABASE_AWAY, asyncpg.PostgresError):
            return False


async def connect(url: str, **options: Any) -> Connection:
    """A connection outside of any pool; what asyncpg raises comes out."""
    connection: Connection = await asyncpg.connect(url, connection_class=Connection, **options)
    connection.watch(url)
    return connection


def _keep_alive(end: socket.socket) -> None:
    if end.family not in (socket.AF_INET, socket.AF_INET6):
        return
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in SOCKET.items():
        if hasattr(socket, name):  # not every system has all of them
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
