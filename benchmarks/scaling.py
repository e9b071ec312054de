"""Files a second of 1, 2, 4 and 8 workers before a provider that takes its time, and what bounds them.

Each file is a few texts, each a call of its own, and each worker has one file in hand: what a worker could do at most
is known, and the provider's latency is nearly all of it. So the ratio per doubling tells of claims, quota and polling,
as long as the machine has processor time left: its busy share stands beside each figure. That nothing is done twice is
counted at the provider, text by text, and in the mirror, claim by claim.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

import asyncpg
import psutil

from tests.support.postgres import PostgresServer, running_postgres, temporary_folder
from tests.support.scarce_gemini import ScarceGemini
from tests.support.workers import all_ended, running_workers, store_texts, worker_environment

SATURATED = 0.85
"""The busy share of the machine from which on a rate says more of it than of the code."""


async def measure(server: PostgresServer, workers: int, files: int, calls: int, latency: float) -> dict[str, object]:
    """The rate of so many workers, from the announcement of the files to the end of the last one."""
    database = await server.clone()
    with ScarceGemini(latency_seconds=latency) as provider, temporary_folder() as objects:
        environment = worker_environment(
            database, objects, provider, worker_concurrency=1, gemini_items_per_call=1, gemini_concurrency=64
        )
        with tempfile.TemporaryDirectory() as logs:
            async with running_workers([environment] * workers, Path(logs)) as processes:
                before = sum(cpu_seconds(worker.process.pid) for worker in processes)
                psutil.cpu_percent()
                started = time.perf_counter()
                await store_texts(database, objects, files, chunks=calls, tenant="bench")
                ended = await all_ended(database)
                seconds = time.perf_counter() - started
                busy = psutil.cpu_percent() / 100
                used = sum(cpu_seconds(worker.process.pid) for worker in processes) - before
    paid = Counter(text for call in provider.embedded for text in call)
    admin = await asyncpg.connect(database.admin_url)
    claims, chunks = await admin.fetchrow(
        "SELECT (SELECT sum(attempts) FROM module_embeddings_files_file),"
        " (SELECT count(*) FROM module_embeddings_file_chunk)"
    )
    await admin.close()
    await server.drop(database)
    rate, ideal = files / seconds, workers / (calls * latency)
    share = rate / ideal
    return {
        "workers": workers,
        "files_per_second": round(rate, 2),
        "share_of_what_the_latency_allows": round(share, 3),
        "machine_busy_share": round(busy, 2),
        "worker_cpu_seconds_per_file": round(used / files, 3),
        "bound_by": "the provider" if share >= 0.9 else "the processors" if busy >= SATURATED else "the workers",
        "calls_at_once": provider.most_at_once,
        "files_completed": ended.get("COMPLETED", 0),
        "chunks_missing_or_double": abs(files * calls - chunks),
        "texts_embedded_twice": sum(count - 1 for count in paid.values()),
        "files_claimed_twice": claims - files,
    }


def cpu_seconds(pid: int) -> float:
    """What a process and those that it started have used."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times) + times[0].children_user + times[0].children_system


async def scale(server: PostgresServer, options: argparse.Namespace) -> dict[str, object]:
    rows = []
    for workers in options.workers:
        rows.append(await measure(server, workers, options.files, options.calls, options.latency))
        print(json.dumps(rows[-1]), flush=True)
    rates = [float(row["files_per_second"]) for row in rows]
    return {
        "benchmark": "scaling",
        "processors": os.cpu_count(),
        "latency_seconds": options.latency,
        "calls_per_file": options.calls,
        "ratios": [round(after / before, 2) for before, after in itertools.pairwise(rates)],
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--files", type=int, default=48)
    parser.add_argument("--calls", type=int, default=5, help="of the model, for each file")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds for each call")
    with running_postgres() as server:
        print(json.dumps(asyncio.run(scale(server, parser.parse_args()))))


if __name__ == "__main__":
    main()
