"""Runs one worker. Any number of them share the work through the mirror tables."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from services.chassis.http.app import operations_app
from services.chassis.http.server import serving_beside
from services.chassis.observability import setup
from services.chassis.start import saying_refusals
from services.chassis.stopping import leave, stop_at_signal
from services.embeddings.bootstrap import build_worker
from services.embeddings.settings import WorkerSettings


async def run(settings: WorkerSettings) -> None:
    """Work until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    stop_at_signal(stop.set, settings.shutdown_seconds)
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(build_worker(settings))
        if settings.worker_port is not None:
            app = operations_app("Cauce worker", lambda: {"worker": worker.fault}, worker.waits)
            await stack.enter_async_context(serving_beside(app, settings, settings.worker_port))
        await worker.run(stop)


def main() -> None:
    """Entry point of ``python -m services.embeddings.worker``."""
    setup("worker")
    with saying_refusals():
        asyncio.run(run(WorkerSettings()))
    leave()


if __name__ == "__main__":
    main()
