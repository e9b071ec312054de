"""A connection that gives up on a caller who does nothing with it: what it holds is for those who do."""

from __future__ import annotations

import asyncio
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


class ServerConfig(uvicorn.Config):
    """How every server of ours serves. Logs and the lifespan are the process's."""

    def __init__(self, app: FastAPI, settings: ListenSettings, **options: Any) -> None:
        super().__init__(
            app,
            host=settings.host,
            http=Connection,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            **options,
        )
        self.caller_idle_seconds = settings.caller_idle_seconds


class Connection(HttpToolsProtocol):
    """A connection as uvicorn has it, looked at every ``caller_idle_seconds``.

    It ends when its caller has taken nothing of an answer from one look to the next.
    """

    def __init__(self, config: ServerConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        self._idle_seconds = config.caller_idle_seconds
        self._unread = 0
        self._next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Look from now on."""
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """The caller reads."""
        self._unread = 0
        super().resume_writing()

    def _look(self) -> None:
        # Nothing is written while this is so: what is unread can only become less.
        is_waiting = self.flow.write_paused or self.transport.is_closing()
        unread = self.transport.get_write_buffer_size() if is_waiting else 0
        if unread and unread == self._unread:
            self.transport.abort()
            return
        self._unread = unread
        self._next_look = self.loop.call_later(self._idle_seconds, self._look)
