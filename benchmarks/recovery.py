"""How long it takes until work goes on: after the death of a worker, and after Postgres or the broker was away.

A worker is killed while it waits for the model; the other one may take its file when the lease has ended. Then files
come in at a steady rate over HTTP into the whole system (the processes and servers of ``tests/faults``), a server is
away for some seconds, and the time counts from the moment at which its start returns: to the first file that ends, to
the first second in which as many files end as come in, and to the moment from which on files are as fresh as before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2

from tests.faults.fleet import LEASE_SECONDS, SWEEP_SECONDS, Fleet, running_fleet
from tests.support.broker import EMBEDDED, KINDS
from tests.support.gemini_server import GeminiServer
from tests.support.postgres import PostgresServer, running_postgres, temporary_folder
from tests.support.workers import all_ended, running_workers, store_texts, worker_environment

Step = Callable[[], Awaitable[None]]

USUAL = 2.0
"""A file is as fresh as before when it took at most so many times what the slowest took without a fault."""


async def worker_killed(server: PostgresServer, lease_seconds: float) -> dict[str, object]:
    """From SIGKILL in the midst of a model call to the file's end at another worker."""
    database = await server.clone()
    with GeminiServer() as provider, temporary_folder() as objects, tempfile.TemporaryDirectory() as name:
        logs = Path(name)
        (logs / "other").mkdir()
        environment = worker_environment(database, objects, provider, lease_seconds=lease_seconds)
        provider.then_hang()
        async with running_workers([environment], logs) as (victim,):
            await store_texts(database, objects, 1, chunks=1)
            while not provider.requests:
                await asyncio.sleep(0.01)
            async with running_workers([environment], logs / "other"):
                victim.kill()
                killed = time.perf_counter()
                ended = await all_ended(database)
                seconds = time.perf_counter() - killed
    await server.drop(database)
    return {"lease_seconds": lease_seconds, "seconds": round(seconds, 2), "ended": ended}


@asynccontextmanager
async def steady_uploads(fleet: Fleet, per_second: float) -> AsyncIterator[None]:
    """So many small files a second; one that is refused is sent again until it is taken."""

    async def upload(number: int) -> None:
        while True:
            with suppress(httpx2.TransportError):
                answer = await fleet.files.post(
                    "/files", files={"file": (f"{number}.txt", f"La bomba {number} abre a {number} bar.".encode())}
                )
                if answer.is_success:
                    return
            await asyncio.sleep(0.2)

    async def keep_on() -> None:
        async with asyncio.TaskGroup() as group:
            started, sent = time.perf_counter(), 0
            while True:
                while sent < (time.perf_counter() - started) * per_second:
                    sent += 1
                    group.create_task(upload(sent))
                await asyncio.sleep(0.02)

    uploading = asyncio.create_task(keep_on())
    try:
        yield
    finally:
        uploading.cancel()
        await asyncio.gather(uploading, return_exceptions=True)


async def ends(fleet: Fleet, since: datetime) -> list[tuple[datetime, float]]:
    """When files ended, and how many seconds after their bytes were stored."""
    rows = await fleet.query(
        "SELECT mirror.finished_at, extract(epoch FROM mirror.finished_at - file.created_at)::float8 AS age"
        " FROM module_embeddings_files_file AS mirror JOIN module_files_file AS file ON file.id = mirror.file_id"
        " WHERE mirror.finished_at >= $1 ORDER BY mirror.finished_at",
        since,
    )
    return [(row["finished_at"], row["age"]) for row in rows]


async def server_away(fleet: Fleet, options: argparse.Namespace, leaves: Step, returns: Step) -> dict[str, object]:
    """The rate before, and the seconds from the server's return on."""
    async with steady_uploads(fleet, options.rate):
        await asyncio.sleep(options.before)
        calm = await ends(fleet, datetime.now(UTC) - timedelta(seconds=options.before - 3))
        if not calm:
            raise SystemExit("no file ended before the fault: raise --before")
        rate = len(calm) / (options.before - 3)
        usual = USUAL * max(age for _, age in calm)
        await leaves()
        await asyncio.sleep(options.away)
        await returns()
        returned = datetime.now(UTC)
        await asyncio.sleep(options.after)
        after = await ends(fleet, returned)
    late = [at for at, age in after if age > usual]
    full = next((at for at, _ in after if sum(at <= one < at + timedelta(seconds=1) for one, _ in after) >= rate), None)
    return {
        "seconds_away": options.away,
        "files_per_second_before": round(rate, 1),
        "usual_seconds_a_file": round(statistics.median(age for _, age in calm), 2),
        "seconds_to_first_file": _since(returned, after[0][0] if after else None),
        "seconds_to_full_speed": _since(returned, full),
        "seconds_to_usual_freshness": _since(returned, late[-1] if late else returned),
    }


def _since(start: datetime, end: datetime | None) -> float | None:
    return None if end is None else round((end - start).total_seconds(), 2)


async def measure(options: argparse.Namespace) -> dict[str, object]:
    result: dict[str, object] = {"benchmark": "recovery", "broker": options.broker}
    with tempfile.TemporaryDirectory() as logs:
        async with running_fleet(options.broker, Path(logs)) as fleet:
            result |= {"fleet_lease_seconds": LEASE_SECONDS, "fleet_sweep_seconds": SWEEP_SECONDS}
            faults: dict[str, tuple[Step, Step]] = {
                "postgres_returns": (
                    lambda: fleet.blocking(fleet.postgres.kill),
                    lambda: fleet.blocking(fleet.postgres.start),
                ),
                "broker_returns_empty": (lambda: fleet.blocking(fleet.broker.kill), fleet.broker_comes_back_empty),
            }
            for name, (leaves, returns) in faults.items():
                result[name] = await server_away(fleet, options, leaves, returns)
                print(name, json.dumps(result[name]), flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=sorted(KINDS), default=EMBEDDED)
    parser.add_argument("--lease", type=float, nargs="+", default=[3.0, 10.0], help="seconds")
    parser.add_argument("--rate", type=float, default=4.0, help="files a second")
    parser.add_argument("--before", type=float, default=10.0, help="seconds without a fault, the first 3 uncounted")
    parser.add_argument("--away", type=float, default=5.0, help="seconds")
    parser.add_argument("--after", type=float, default=20.0, help="seconds")
    options = parser.parse_args()
    with running_postgres() as server:
        killed = []
        for lease in options.lease:
            killed.append(asyncio.run(worker_killed(server, lease)))
            print("worker_killed", json.dumps(killed[-1]), flush=True)
    print(json.dumps({"worker_killed": killed} | asyncio.run(measure(options))))


if __name__ == "__main__":
    main()
