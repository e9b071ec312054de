"""What workers make of a provider that allows a fifth of what they could send and refuses the rest.

The provider is a local server: so many texts in each window, a 429 with its own delay for what is more. First the
workers run without a limit, which is the demand; then with a fifth of that. One ratio is of what was embedded to what
the windows allowed; the other to what the time allowed, in which a pause that ends late costs as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from tests.support.postgres import Database, PostgresServer, running_postgres, temporary_folder
from tests.support.scarce_gemini import ScarceGemini
from tests.support.workers import all_ended, running_workers, store_texts, worker_environment

CHUNKS = 5


async def embed(
    database: Database, workers: int, files: int, provider: ScarceGemini, **settings: object
) -> tuple[float, dict[str, int]]:
    """Seconds from the first call to the end of the last file, and how the files ended."""
    with temporary_folder() as folder, tempfile.TemporaryDirectory() as logs:
        environment = worker_environment(database, folder, provider, **settings)
        async with running_workers([environment] * workers, Path(logs)):
            await store_texts(database, folder, files, chunks=CHUNKS, tenant=f"tenant-{uuid4().hex[:6]}")
            started = time.perf_counter()
            ended = await all_ended(database)
            return time.perf_counter() - started, ended


async def measure(
    server: PostgresServer, workers: int, files: int, windows: int, window_seconds: float
) -> dict[str, object]:
    database = await server.clone()
    with ScarceGemini() as provider:
        seconds, _ = await embed(database, workers, files, provider)
    demand = files * CHUNKS / seconds
    await server.drop(database)

    allowed = max(CHUNKS, round(demand * window_seconds / 5 / CHUNKS) * CHUNKS)
    database = await server.clone()
    with ScarceGemini(texts=allowed, window_seconds=window_seconds) as provider:
        _, ended = await embed(database, workers, windows * allowed // CHUNKS, provider, max_attempts=1)
    await server.drop(database)
    used = [window.texts for window in provider.windows[:-1]]
    seconds = provider.windows[-1].ends - provider.windows[0].ends
    return {
        "benchmark": "storm",
        "workers": workers,
        "demand_texts_per_second": round(demand, 1),
        "window_seconds": window_seconds,
        "allowed_texts_a_window": allowed,
        "share_of_windows_used": round(sum(used) / (allowed * len(used)), 3),
        "share_by_the_clock": round(sum(used) / (allowed * seconds / window_seconds), 3),
        "calls_embedded": len(provider.embedded),
        "calls_refused": provider.refused,
        "files_failed": ended.get("FAILED", 0),
        "texts_paid_twice": sum(map(len, provider.embedded))
        - len({text for call in provider.embedded for text in call}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--files", type=int, default=60, help="to find the demand with")
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--window", type=float, default=1.0, help="seconds")
    arguments = parser.parse_args()
    with running_postgres() as server:
        result = measure(server, arguments.workers, arguments.files, arguments.windows, arguments.window)
        print(json.dumps(asyncio.run(result)))


if __name__ == "__main__":
    main()
