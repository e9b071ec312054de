"""Connections that give up on callers who do nothing with them, and a bound on how many there are."""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.chassis.settings import ListenSettings

KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep a connection that they do not use: who closes it first may cut off the other's request."""
UNSENT_BYTES = 64 * 1024
"""What the kernel takes of an answer before its caller is ready for it. Were it more, a caller who reads slowly would
look from here like one who does not read."""
ABORT = "abort_connection"
"""Where a request's ``state`` has the function that ends its connection at once, whatever is unsent."""
BACKLOG = 256
"""Connections that the kernel keeps until they are taken, which is all at once: they need room beyond the bound."""


class ServerConfig(uvicorn.Config):
    """How every server of ours serves. Logs and the lifespan are the process's."""

    def __init__(self, app: FastAPI, settings: ListenSettings, **options: Any) -> None:
        super().__init__(
            app,
            host=settings.host,
            http=Connection,
            ws="none",
            backlog=BACKLOG,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            **options,
        )
        self.caller_idle_seconds = settings.caller_idle_seconds
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        unbounded = files == resource.RLIM_INFINITY
        self.max_connections = settings.max_connections if unbounded else min(settings.max_connections, files // 2)


class Connection(HttpToolsProtocol):
    """A connection as uvicorn has it, looked at every ``caller_idle_seconds``.

    It ends when its caller, from one look to the next, has taken nothing of an answer or has not ended a header. A new
    one beyond ``max_connections`` ends the one that has been without a request for longest, so it is served itself.
    """

    def __init__(self, config: ServerConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        self._idle_seconds = config.caller_idle_seconds
        self._max_connections = config.max_connections
        self._idle_since = self.loop.time()
        self._awaited: tuple[str, object] | None = None
        self._next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Look from now on."""
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        if len(self.connections) > self._max_connections:
            self._make_room()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """The caller reads."""
        self._awaited = None
        super().resume_writing()

    def on_message_begin(self) -> None:
        """Let what answers the request end the connection."""
        super().on_message_begin()
        self.scope["state"][ABORT] = self.transport.abort

    def on_response_complete(self) -> None:
        """Be without a request, unless the next one is here."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self) -> None:
        kept = [one for one in self.connections if isinstance(one, Connection) and not one.transport.is_closing()]
        if len(kept) > self._max_connections:
            min((one for one in kept if one._is_idle), key=lambda one: one._idle_since).transport.abort()

    def _look(self) -> None:
        awaited = self._what_is_awaited()
        if awaited is not None and awaited == self._awaited:
            self.transport.abort()
            return
        self._awaited = awaited
        self._next_look = self.loop.call_later(self._idle_seconds, self._look)

    def _what_is_awaited(self) -> tuple[str, object] | None:
        """What the caller is to do next, and how far it is: the same as before when nothing was done."""
        if self.flow.write_paused or self.transport.is_closing():
            # Nothing is written meanwhile: what is unread can only become less.
            return "reading", self.transport.get_write_buffer_size()
        # A body that was answered before its end may still come, and a kept connection may rest for longer.
        if not self._is_idle or (self.cycle and self.cycle.more_body) or self.timeout_keep_alive_task:
            return None
        return "header", self.cycle
