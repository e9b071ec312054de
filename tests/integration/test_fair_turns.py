"""Nobody's work holds up another's: tenants take turns, and large files leave a place for small ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from services.chassis.postgres.pool import create_pool
from services.chassis.postgres.queries import load_query
from services.chassis.resource_types import load_resource_types
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.embeddings.adapters.postgres.file_work import PostgresFileWork
from services.embeddings.adapters.postgres.resource_work import PostgresResourceWork
from services.embeddings.domain.file_work import LARGE_BYTES, ClaimedFile
from services.embeddings.entrypoints.worker import Label, Worker
from tests.support.postgres import Database
from tests.support.source_files import RECIPE, store_file, uploaded

MANY = 10_000
FILES = """
INSERT INTO module_embeddings_files_file (file_id, tenant_id, name, large, available_at)
SELECT $1 + number, $2, 'file', $4, now() - interval '1 hour' + number * interval '1 millisecond'
FROM generate_series(1, $3) AS number
"""
RESOURCES = """
INSERT INTO module_embeddings_resource (entity_type, entity_id, tenant_id, name, available_at)
SELECT $1, $2 + number, $3, 'resource', now() - interval '1 hour' + number * interval '1 millisecond'
FROM generate_series(1, $4) AS number
"""


@dataclass
class Queues:
    """Both queues, as a worker sees them and as the owner does."""

    admin: asyncpg.Connection
    pool: asyncpg.Pool
    files: PostgresFileWork
    resources: PostgresResourceWork

    async def add_files(self, tenant: str, count: int, *, first: int, large: bool = False) -> None:
        await self.admin.execute(FILES, first, tenant, count, large)

    async def add_resources(self, type_: str, tenant: str, count: int, *, first: int) -> None:
        await self.admin.execute(RESOURCES, type_, first, tenant, count)

    async def claim_tenants(self, claims: int) -> list[str]:
        """Whose file came at each claim of one."""
        return [claim.tenant_id for _ in range(claims) for claim in await self.files.claim(1)]

    async def plan(self, query: str, *arguments: Any) -> str:
        """How the statement ran, without its effect."""
        transaction = self.admin.transaction()
        await transaction.start()
        rows = await self.admin.fetch(
            f"EXPLAIN (ANALYZE, BUFFERS) {load_query('services.embeddings', query)}", *arguments
        )
        await transaction.rollback()
        return "\n".join(row[0] for row in rows)


@pytest.fixture
async def queues(database: Database) -> AsyncIterator[Queues]:
    admin = await asyncpg.connect(database.admin_url)
    pool = await create_pool(database.embeddings_url, application_name="test")
    resources = PostgresResourceWork(pool, load_resource_types(), lease_seconds=60)
    yield Queues(admin, pool, PostgresFileWork(pool, lease_seconds=60, recipe=RECIPE), resources)
    await pool.close()
    await admin.close()


async def test_a_tenants_many_files_do_not_delay_anothers_one(queues: Queues) -> None:
    await queues.add_files("many", MANY, first=0)
    assert await queues.claim_tenants(2) == ["many", "many"]

    await queues.add_files("few", 1, first=MANY)
    assert await queues.claim_tenants(1) == ["few"]


async def test_tenants_share_the_places_whoever_came_first(queues: Queues) -> None:
    for number, tenant in enumerate(("a", "b", "c")):
        await queues.add_files(tenant, 100, first=number * 1_000)
    assert Counter(claim.tenant_id for claim in await queues.files.claim(6)) == {"a": 2, "b": 2, "c": 2}
    assert Counter(await queues.claim_tenants(6)) == {"a": 2, "b": 2, "c": 2}


async def test_of_very_many_tenants_each_has_its_turn(queues: Queues) -> None:
    tenants = [f"tenant-{number:03}" for number in range(150)]
    for number, tenant in enumerate(tenants):
        await queues.add_files(tenant, 2, first=number * 10)
    assert sorted(await queues.claim_tenants(150)) == tenants


async def test_files_of_a_tenant_come_in_the_order_of_their_wait(queues: Queues) -> None:
    await queues.add_files("a", 5, first=0)
    assert [claim.file_id for _ in range(5) for claim in await queues.files.claim(1)] == [1, 2, 3, 4, 5]


async def test_no_more_large_files_are_claimed_than_asked_for(queues: Queues) -> None:
    await queues.add_files("a", 50, first=0, large=True)
    await queues.add_files("a", 3, first=100)
    assert [claim.is_large for claim in await queues.files.claim(4, large=1)].count(True) == 1
    assert await queues.files.claim(4, large=0) == []
    await queues.admin.execute(
        "UPDATE module_embeddings_files_file SET lease_expires_at = now() - interval '1 second'"
        " WHERE status = 'PROCESSING'"
    )
    assert [claim.is_large for claim in await queues.files.claim(2, large=0)] == [False, False]
    assert len(await queues.files.claim(9)) == 9


async def run_worker(
    queues: Queues, process: Callable[[ClaimedFile], Awaitable[None]], stop: asyncio.Event, *, concurrency: int
) -> None:
    worker = Worker(
        queues.files,
        process,
        kind="file",
        label=Label.of_file,
        concurrency=concurrency,
        poll_seconds=0.01,
        shutdown_seconds=10,
    )
    await asyncio.wait_for(worker.run(stop), 60)


async def test_a_large_file_in_hand_does_not_stop_small_ones(queues: Queues) -> None:
    mirror = PostgresFileMirror(queues.pool)
    large = [await store_file(queues.admin, size=200 * 2**20) for _ in range(3)]
    small = [await store_file(queues.admin, size=LARGE_BYTES) for _ in range(20)]
    await mirror.mark([uploaded(file_id) for file_id in [*large, *small]])
    begun: list[int] = []
    done: list[int] = []
    released, stop = asyncio.Event(), asyncio.Event()

    async def process(claim: ClaimedFile) -> None:
        begun.append(claim.file_id)
        if claim.is_large:
            await released.wait()
        done.append(claim.file_id)
        if sorted(done) == small:
            stop.set()
            released.set()

    await run_worker(queues, process, stop, concurrency=2)
    assert sum(file_id in large for file_id in begun) == 1
    assert set(small) <= set(done)


async def test_a_worker_of_one_place_takes_large_files_too(queues: Queues) -> None:
    await queues.add_files("a", 1, first=0, large=True)
    stop = asyncio.Event()

    async def process(_: ClaimedFile) -> None:
        stop.set()

    await run_worker(queues, process, stop, concurrency=1)


async def test_a_tenants_many_resources_do_not_delay_anothers_one(queues: Queues) -> None:
    await queues.add_resources("variable", "many", MANY, first=0)
    await queues.add_resources("tag", "few", 1, first=0)
    await queues.add_resources("variable", "few", 1, first=MANY)
    claimed: set[tuple[str, int]] = set()
    for _ in range(3):
        (batch,) = await queues.resources.claim(1)
        claimed |= {(batch.entity_type, entity_id) for entity_id in batch.entity_ids}
    assert {("tag", 1), ("variable", MANY + 1)} <= claimed


async def test_tenants_share_a_batch(queues: Queues) -> None:
    for number in range(4):
        await queues.add_resources("variable", f"tenant-{number}", 100, first=number * 100)
    (batch,) = await queues.resources.claim(1)
    assert Counter((entity_id - 1) // 100 for entity_id in batch.entity_ids) == {0: 25, 1: 25, 2: 25, 3: 25}


@pytest.mark.parametrize("tenants", [1, 100])
async def test_claims_look_into_an_index_however_long_the_queues_are(queues: Queues, tenants: int) -> None:
    each = 50_000 // tenants
    for number in range(tenants):
        await queues.add_files(f"tenant-{number:03}", each, first=number * each)
        await queues.add_resources("variable", f"tenant-{number:03}", each, first=number * each)
    await queues.admin.execute("ANALYZE module_embeddings_files_file, module_embeddings_resource")

    of_files = await queues.plan("claim_files", 1, 60.0, 1, "tenant-050")
    of_resources = await queues.plan("claim_resources", list(load_resource_types()), 100, 60.0, "tenant-050")
    for plan in (of_files, of_resources):
        assert "Seq Scan on module_embeddings" not in plan, plan
        assert "Bitmap" not in plan, plan
