"""Files a second of 1, 2, 4 and 8 workers before a provider that takes its time, and what bounds them.

Each file is a few texts, each a call of its own, and each worker has one file in hand: what a worker could do at most
is known, and the provider's latency is nearly all of it. So the ratio per doubling tells of claims, quota and polling,
as long as the machine has processor time left: its busy share stands beside each figure. That nothing is done twice is
counted at the provider, text by text, and in the mirror, claim by claim.

Measured is what goes on for as long as there is work. In the first rounds each worker imports its readers and opens its
connections: seconds of processor time that eight of them take from one another, once. In the last one places become
empty. And latencies differ, as a provider's do: equal files that begin together would stay in step for the whole run,
and want the processors all at once, then the provider all at once.
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
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import psutil

from tests.support.postgres import Database, PostgresServer, running_postgres, temporary_folder
from tests.support.scarce_gemini import ScarceGemini
from tests.support.workers import all_ended, running_workers, store_texts, worker_environment

ROUNDS_BEFORE, ROUNDS_AFTER = 2, 1
"""Rounds of a file for each worker that are not measured."""
LATENCY_SPREAD = 0.5
SATURATED = 0.85
"""The busy share of the machine from which on a rate says more of it than of the code."""


@dataclass(frozen=True)
class Moment:
    """A moment of a run: by the clock, files that have ended, and seconds of processor time that the workers used."""

    at: float
    files: int
    used: float


async def measure(server: PostgresServer, workers: int, rounds: int, calls: int, latency: float) -> dict[str, object]:
    """The rate of so many workers in so many rounds of a file for each of them, while all are at work."""
    files = workers * (ROUNDS_BEFORE + rounds + ROUNDS_AFTER)
    database = await server.clone()
    with (
        ScarceGemini(latency_seconds=latency, latency_spread=LATENCY_SPREAD) as provider,
        temporary_folder() as objects,
    ):
        environment = worker_environment(
            database,
            objects,
            provider,
            worker_concurrency=1,
            gemini_items_per_call=1,
            gemini_concurrency=64,
            poll_seconds=0.25,
        )
        with tempfile.TemporaryDirectory() as logs:
            async with running_workers([environment] * workers, Path(logs)) as processes:

                async def once_ended(count: int) -> Moment:
                    ended = await some_ended(database, count)
                    used = sum(cpu_seconds(worker.process.pid) for worker in processes)
                    return Moment(time.perf_counter(), ended, used)

                await store_texts(database, objects, files, chunks=calls, tenant="bench")
                start = await once_ended(workers * ROUNDS_BEFORE)
                psutil.cpu_percent()
                end = await once_ended(workers * (ROUNDS_BEFORE + rounds))
                busy = psutil.cpu_percent() / 100
                ended = await all_ended(database)
    paid = Counter(text for call in provider.embedded for text in call)
    admin = await asyncpg.connect(database.admin_url)
    claims, chunks = await admin.fetchrow(
        "SELECT (SELECT sum(attempts) FROM module_embeddings_files_file),"
        " (SELECT count(*) FROM module_embeddings_file_chunk)"
    )
    await admin.close()
    await server.drop(database)
    measured = end.files - start.files
    rate, ideal = measured / (end.at - start.at), workers / (calls * latency)
    share = rate / ideal
    return {
        "workers": workers,
        "files_measured": measured,
        "files_per_second": round(rate, 3),
        "share_of_what_the_latency_allows": round(share, 3),
        "machine_busy_share": round(busy, 2),
        "worker_cpu_seconds_per_file": round((end.used - start.used) / measured, 3),
        "bound_by": "the provider" if share >= 0.9 else "the processors" if busy >= SATURATED else "the workers",
        "calls_at_once": provider.most_at_once,
        "files_completed": ended.get("COMPLETED", 0),
        "chunks_missing_or_double": abs(files * calls - chunks),
        "texts_embedded_twice": sum(count - 1 for count in paid.values()),
        "files_claimed_twice": claims - files,
    }


async def some_ended(database: Database, count: int) -> int:
    """Wait until so many files have ended. Return how many have by then."""
    connection = await asyncpg.connect(database.admin_url)
    query = "SELECT count(*) FROM module_embeddings_files_file WHERE status NOT IN ('PENDING', 'PROCESSING')"
    try:
        while (ended := await connection.fetchval(query)) < count:
            await asyncio.sleep(0.05)
        return int(ended)
    finally:
        await connection.close()


def cpu_seconds(pid: int) -> float:
    """What a process and those that it started have used."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times) + times[0].children_user + times[0].children_system


async def scale(server: PostgresServer, options: argparse.Namespace) -> dict[str, object]:
    rows = []
    for workers in options.workers:
        rows.append(await measure(server, workers, options.rounds, options.calls, options.latency))
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
    parser.add_argument("--rounds", type=int, default=6, help="of a file for each worker, that are measured")
    parser.add_argument("--calls", type=int, default=5, help="of the model, for each file")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds for each call, on average")
    with running_postgres() as server:
        print(json.dumps(asyncio.run(scale(server, parser.parse_args()))))


if __name__ == "__main__":
    main()
