"""A model of resources that are made from one another, against the real tables.

Changes and deletions, events that are lost, doubled and reordered, several workers that stop between their reads and
writes, leases that end, late writes and faults, in any order. Whatever happened, delivering what was not delivered (or
a sweep) and a drained queue leave exactly what the contexts say now, and no text ever goes back to an older version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.events.envelope import Event
from services.embeddings.adapters.postgres import resource_mirror
from services.embeddings.adapters.postgres.resource_work import PostgresResourceWork
from services.embeddings.application.embed_resources import EmbedResources
from services.embeddings.domain.resource_work import ClaimedBatch
from tests.support.postgres import PostgresServer
from tests.support.resources import ResourceWorld, resource_world

T = TypeVar("T")

NUMBER = st.integers(0, 59)
EXAMPLES = 40
MAX_WORKERS = 3
IDS = (1, 2)
# Queries read variables and queries; tags read variables, which read them back.
REFERENCES = {"variable": (), "query": ("variables", "queries"), "tag": ("variables",)}
KEYS = [("variable", 1), ("variable", 2), ("query", 1), ("tag", 1)]
STEPS = [
    *["change"] * 4,
    *["a_worker_claims"] * 4,
    *["a_worker_goes_on"] * 6,
    *["delete", "deliver_an_event_again", "a_worker_dies", "leases_end", "sweep"],
]


def pick(choices: Sequence[T], number: int) -> T:
    """The choice that a number stands for."""
    return choices[number % len(choices)]


class PausingWork:
    """The real work, which stops before each step until it is let on."""

    def __init__(self, work: PostgresResourceWork) -> None:
        self._work = work
        self._waiting: asyncio.Future[None] | None = None

    async def advance(self, task: asyncio.Task[None]) -> bool:
        """Let the task on to its next stop. Returns whether it has ended."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.set_result(None)
        while self._waiting is None and not task.done():
            await asyncio.sleep(0)
        if task.done():
            task.result()
        return task.done()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._work, name)

        async def after_a_stop(*arguments: object) -> object:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
            return await method(*arguments)

        return after_a_stop


class Tables:
    """The connections that all examples share; each example starts from empty tables."""

    def __init__(self, runner: asyncio.Runner, world: ResourceWorld) -> None:
        self.run: Callable[[Awaitable[T]], T] = lambda awaitable: runner.run(_as_coroutine(awaitable))
        self.world = world

    def clear(self) -> None:
        """Not by TRUNCATE: the lexical index of pg_textsearch does not survive one."""
        tables = [self.world.types[name].source_table for name in REFERENCES]
        for table in (*tables, "module_embeddings_resource", "module_embeddings_outbox"):
            self.run(self.world.admin.execute(f"DELETE FROM {table}"))


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


class ResourceLifecycle:
    """Drives the tables. A resource's name tells its version, and versions only grow. Steps take two random numbers."""

    def __init__(self, tables: Tables, *, lose_events: bool) -> None:
        self.world = tables.world
        self.run = tables.run
        self.lose_events = lose_events
        tables.clear()
        self.version = 0
        self.events: list[Event] = []
        self.delivered: set[UUID] = set()
        self.workers: list[tuple[PausingWork, asyncio.Task[None]]] = []
        self.seen: dict[tuple[str, int], tuple[int, int]] = {}

    def change(self, which: int, how: int) -> None:
        """Make a resource or change it; mostly its event comes at once."""
        self.version += 1
        type_name, entity_id = pick(KEYS, which)
        others = pick([[], [1], [2], [1, 2]], how)
        fields: dict[str, object] = {field: list(others) for field in REFERENCES[type_name]}
        self._announce(self.run(self.world.put(type_name, entity_id, f"v{self.version}", **fields)), how)

    def delete(self, which: int, how: int) -> None:
        self._announce(self.run(self.world.delete(*pick(KEYS, which))), how)

    def deliver_an_event_again(self, which: int, other: int) -> None:
        if self.events:
            self._deliver([pick(self.events, which), pick(self.events, other)])

    def a_worker_claims(self, _: int, steps: int) -> None:
        for batch in self.run(self.world.work.claim(1)) if len(self.workers) < MAX_WORKERS else []:
            self.workers.append(self.run(self._start(batch)))
            self.a_worker_goes_on(len(self.workers) - 1, steps)

    def a_worker_goes_on(self, which: int, steps: int) -> None:
        if not self.workers:
            return
        work, task = pick(self.workers, which)
        for _ in range(steps % 4):
            if self.run(work.advance(task)):
                self.workers.remove((work, task))
                break

    def a_worker_dies(self, which: int, _: int) -> None:
        if self.workers:
            _, task = self.workers.pop(which % len(self.workers))
            self.run(_cancel(task))

    def leases_end(self, _: int, __: int) -> None:
        self.run(self.world.expire_leases())

    def sweep(self, _: int, __: int) -> None:
        if self.lose_events:
            self.run(self.world.mirror.sweep())

    def check_that_no_text_went_back_to_an_older_version(self) -> None:
        rows = self.run(
            self.world.admin.fetch(
                "SELECT entity_type, entity_id, vector.name, mirror.revision FROM module_embeddings_unified AS vector"
                " JOIN module_embeddings_resource AS mirror USING (entity_type, entity_id)"
            )
        )
        for row in rows:
            key, now = (row["entity_type"], row["entity_id"]), (int(row["name"][1:]), row["revision"])
            before = self.seen.get(key, (0, 0))
            assert now[0] >= before[0]
            assert now[1] >= before[1]
            self.seen[key] = now

    def check_the_end(self) -> None:
        """Once every event has come, or a sweep has run, a drained queue leaves what the contexts say."""
        self.stop_workers()
        self.leases_end(0, 0)
        if self.lose_events:
            self.run(self.world.mirror.sweep())
        else:
            self.run(self.world.mirror.mark([one for one in self.events if one.event_id not in self.delivered]))
        self.run(self.world.drain())
        assert self.run(self._found()) == self.run(self._expected())
        assert self.run(self.world.mirror.sweep()) == {}

    def stop_workers(self) -> None:
        for _, task in self.workers:
            self.run(_cancel(task))
        self.workers.clear()

    async def _expected(self) -> dict[tuple[str, int], tuple[str, set[tuple[str, int]]]]:
        """Text and sources of every resource, as its context has them."""
        expected = {}
        for name in REFERENCES:
            recipe = self.world.embed.recipes[name]
            for context in await self.world.work.read(name, IDS):
                text = recipe.text(context.entity_id, context.values)
                expected[name, context.entity_id] = (text, {tuple(source) for source in recipe.sources(context.reads)})
        return expected

    async def _found(self) -> dict[tuple[str, int], tuple[str, set[tuple[str, int]]]]:
        rows = await self.world.admin.fetch(
            "SELECT entity_type, entity_id, embedding_text FROM module_embeddings_unified"
        )
        found: dict[tuple[str, int], tuple[str, set[tuple[str, int]]]] = {
            (row["entity_type"], row["entity_id"]): (row["embedding_text"], set()) for row in rows
        }
        for row in await self.world.admin.fetch("SELECT * FROM module_embeddings_dependency"):
            found[row["dependent_type"], row["dependent_id"]][1].add((row["source_type"], row["source_id"]))
        states = await self.world.admin.fetch("SELECT entity_type, entity_id, status FROM module_embeddings_resource")
        assert {(row["entity_type"], row["entity_id"]) for row in states} == set(found)
        assert {row["status"] for row in states} <= {"COMPLETED"}
        return found

    def _resource_of(self, event: Event) -> tuple[str, int]:
        (type_name,) = (one.name for one in self.world.types.values() if event.type in (one.changed, one.deleted))
        return type_name, event.aggregate_id

    async def _mirrored(self) -> list[Any]:
        rows = await self.world.admin.fetch("SELECT * FROM module_embeddings_resource ORDER BY entity_type, entity_id")
        return list(rows)

    async def _start(self, batch: ClaimedBatch) -> tuple[PausingWork, asyncio.Task[None]]:
        work = PausingWork(self.world.work)
        real = self.world.embed
        embed = EmbedResources(work, real.embedder, real.recipes, real.space_id)  # type: ignore[arg-type]
        task = asyncio.ensure_future(embed(batch))
        await work.advance(task)
        return work, task

    def _announce(self, event: Event, how: int) -> None:
        self.events.append(event)
        if how % 5:
            self._deliver([event])

    def _deliver(self, events: Sequence[Event]) -> None:
        """Those of what is there once more as well, which is to change nothing."""
        self.run(self.world.mirror.mark(events))
        once = self.run(self._mirrored())
        there = {(row["entity_type"], row["entity_id"]) for row in once}
        self.run(self.world.mirror.mark([event for event in events if self._resource_of(event) in there]))
        assert self.run(self._mirrored()) == once
        self.delivered |= {event.event_id for event in events}


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def tables(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tables]:
    monkeypatch.setattr(resource_mirror, "IN_FLIGHT_SECONDS", 0.0)
    with asyncio.Runner() as runner:
        database = runner.run(postgres_server.clone())
        opening = resource_world(database)
        yield Tables(runner, runner.run(opening.__aenter__()))
        runner.run(opening.__aexit__(None, None, None))
        runner.run(postgres_server.drop(database))


@pytest.mark.parametrize("lose_events", [True, False], ids=["events are lost", "every event comes once at least"])
def test_whatever_happens_the_index_ends_as_the_contexts_are(tables: Tables, lose_events: bool) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(st.sampled_from(STEPS), NUMBER, NUMBER), min_size=30, max_size=50))
    def run(program: Sequence[tuple[str, int, int]]) -> None:
        life = ResourceLifecycle(tables, lose_events=lose_events)
        try:
            for step, *numbers in program:
                getattr(life, step)(*numbers)
                life.check_that_no_text_went_back_to_an_older_version()
            life.check_the_end()
        finally:
            life.stop_workers()

    run()
