"""Runs an application until a signal stops it, finishing what is in hand."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from socket import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from services.chassis.http.connection import ServerConfig
from services.chassis.observability import flush
from services.chassis.settings import HttpSettings, ListenSettings
from services.chassis.stopping import end_in_time

PROBE_SECONDS = 1


def serve(app: FastAPI, settings: HttpSettings) -> None:
    """Serve until SIGTERM or SIGINT; open requests get ``shutdown_seconds`` to end.

    What the application raises at its start comes out of here.
    """
    config = ServerConfig(
        app, settings, port=settings.port, timeout_graceful_shutdown=math.ceil(settings.shutdown_seconds)
    )
    with suppress(KeyboardInterrupt):
        _Server(config, app, settings.shutdown_seconds).run()


class _Server(uvicorn.Server):
    """Sets ``app.state.stopping`` at the signal, so that answers without an end can end.

    The lifespan is around the server, and not uvicorn's: that one only logs the traceback of what it raises.
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, shutdown_seconds: float) -> None:
        super().__init__(config)
        self._app = app
        self._shutdown_seconds = shutdown_seconds

    async def serve(self, sockets: list[socket] | None = None) -> None:
        with self.capture_signals():
            async with self._app.router.lifespan_context(self._app):
                await self._serve(sockets)
            # The signal is raised again next, and ends the process as it is.
            flush()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            end_in_time(self._shutdown_seconds)
        self._app.state.stopping = True
        super().handle_exit(sig, frame)


@asynccontextmanager
async def serving_beside(app: FastAPI, settings: ListenSettings, port: int) -> AsyncIterator[None]:
    """Serve for the time of the context, beside what else the process does. A port that is taken ends the process."""
    server = _Guest(ServerConfig(app, settings, port=port, timeout_graceful_shutdown=PROBE_SECONDS))
    serving = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await serving


class _Guest(uvicorn.Server):
    """Leaves the signals to the process that it is a guest of."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
