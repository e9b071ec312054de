"""Runs an application until a signal stops it, finishing what is in hand."""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI

from services.chassis.settings import HttpSettings

SHUTDOWN_SECONDS = 8


def serve(app: FastAPI, settings: HttpSettings) -> None:
    """Serve until SIGTERM or SIGINT; open requests get a few seconds to end."""
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
