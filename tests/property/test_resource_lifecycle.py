"""A model of resources that are made from one another, against the real tables.

Changes and deletions, events that are lost, doubled and reordered, several workers that stop between their reads and
writes, leases that end, late writes and faults, in any order. Whatever happened, delivering what was not delivered (or
a sweep) and a drained queue leave exactly what the contexts say now, and no text ever goes back to an older version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from contracts.events.envelope import Event
from services.embeddings.adapters.postgres import resource_mirror
from services.embeddings.adapters.postgres.resource_work import PostgresResourceWork
from services.embeddings.application.embed_resources import EmbedResources
from services.embeddings.domain.resource_work import ClaimedBatch
from tests.support.postgres import PostgresServer
from tests.support.resources import ResourceWorld, resource_world

T = TypeVar("T")

PICK = st.integers(0, 1_000_000)
IDS = (1, 2)
# Queries read variables and queries; tags read variables, which read them back.
REFERENCES = {"variable": (), "query": ("variables", "queries"), "tag": ("variables",)}
STEPS = 40


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
        tables = ", ".join(self.world.types[name].source_table for name in REFERENCES)
        self.run(
            self.world.admin.execute(f"TRUNCATE {tables}, module_embeddings_resource, module_embeddings_outbox CASCADE")
        )


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


class ResourceLifecycle(RuleBasedStateMachine):
    """Drives the tables. A resource's name tells its version, and versions only grow."""

    def __init__(self, tables: Tables, *, lose_events: bool) -> None:
        super().__init__()
        self.world = tables.world
        self.run = tables.run
        self.lose_events = lose_events
        tables.clear()
        self.version = 0
        self.events: list[Event] = []
        self.delivered: set[UUID] = set()
        self.workers: list[tuple[PausingWork, asyncio.Task[None]]] = []
        self.seen: dict[tuple[str, int], tuple[int, int]] = {}

    @rule(
        type_name=st.sampled_from(sorted(REFERENCES)),
        entity_id=st.sampled_from(IDS),
        others=st.lists(st.sampled_from(IDS), unique=True),
        prompt=st.booleans(),
    )
    def change(self, type_name: str, entity_id: int, others: Sequence[int], prompt: bool) -> None:
        """Make it or change it; ``prompt`` says whether the event comes at once."""
        self.version += 1
        fields: Mapping[str, object] = {field: list(others) for field in REFERENCES[type_name]}
        self._announce(self.run(self.world.put(type_name, entity_id, f"v{self.version}", **fields)), prompt)

    @rule(type_name=st.sampled_from(sorted(REFERENCES)), entity_id=st.sampled_from(IDS), prompt=st.booleans())
    def delete(self, type_name: str, entity_id: int, prompt: bool) -> None:
        self._announce(self.run(self.world.delete(type_name, entity_id)), prompt)

    @precondition(lambda self: self.events)
    @rule(picks=st.lists(PICK, min_size=1, max_size=4))
    def deliver_some_events_in_any_order_any_number_of_times(self, picks: Sequence[int]) -> None:
        self._deliver([self.events[pick % len(self.events)] for pick in picks])

    @precondition(lambda self: len(self.workers) < 3)
    @rule()
    def a_worker_claims(self) -> None:
        for batch in self.run(self.world.work.claim(1)):
            self.run(self._start(batch))

    @precondition(lambda self: self.workers)
    @rule(pick=PICK, steps=st.integers(1, 4))
    def a_worker_goes_on(self, pick: int, steps: int) -> None:
        work, task = self.workers[pick % len(self.workers)]
        for _ in range(steps):
            if self.run(work.advance(task)):
                self.workers.remove((work, task))
                break

    @precondition(lambda self: self.workers)
    @rule(pick=PICK)
    def a_worker_dies(self, pick: int) -> None:
        _, task = self.workers.pop(pick % len(self.workers))
        self.run(_cancel(task))

    @rule()
    def leases_end(self) -> None:
        self.run(self.world.expire_leases())

    @precondition(lambda self: self.lose_events)
    @rule()
    def sweep(self) -> None:
        self.run(self.world.mirror.sweep())

    @invariant()
    def no_text_goes_back_to_an_older_version(self) -> None:
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

    def teardown(self) -> None:
        """Once every event has come, or a sweep has run, a drained queue leaves what the contexts say."""
        for _, task in self.workers:
            self.run(_cancel(task))
        self.leases_end()
        if self.lose_events:
            self.run(self.world.mirror.sweep())
        else:
            self.run(self.world.mirror.mark([one for one in self.events if one.event_id not in self.delivered]))
        self.run(self.world.drain())
        assert self.run(self._found()) == self.run(self._expected())
        assert self.run(self.world.mirror.sweep()) == {}

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

    async def _start(self, batch: ClaimedBatch) -> None:
        work = PausingWork(self.world.work)
        real = self.world.embed
        embed = EmbedResources(work, real.embedder, real.recipes, real.space_id)  # type: ignore[arg-type]
        task = asyncio.ensure_future(embed(batch))
        await work.advance(task)
        self.workers.append((work, task))

    def _announce(self, event: Event, prompt: bool) -> None:
        self.events.append(event)
        if prompt:
            self._deliver([event])

    def _deliver(self, events: Sequence[Event]) -> None:
        self.run(self.world.mirror.mark(events))
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
    run_state_machine_as_test(
        lambda: ResourceLifecycle(tables, lose_events=lose_events),
        settings=settings(
            max_examples=30, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
        ),
        _min_steps=STEPS // 2,  # short runs reach few interleavings
    )
