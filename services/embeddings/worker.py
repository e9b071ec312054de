"""Runs one worker. Any number of them share the work through the mirror tables."""

from __future__ import annotations

import asyncio
import signal

from services.chassis.observability import get_logger, setup
from services.embeddings.bootstrap import build_worker
from services.embeddings.settings import WorkerSettings


async def run(settings: WorkerSettings) -> None:
    """Work until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with build_worker(settings) as worker:
        get_logger(__name__).info("worker_ready")
        await worker.run(stop)


def main() -> None:
    """Entry point of ``python -m services.embeddings.worker``."""
    setup("worker")
    asyncio.run(run(WorkerSettings()))


if __name__ == "__main__":
    main()
