"""Nothing lost, nothing stuck, nothing twice: processes killed at every named step, servers that go and come back.

``--faults-seed`` repeats a run. A short run takes some steps of each process, ``--faults-long`` all of them; each names
what it did.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import zip_longest

import httpx2
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, TopicPartition

from contracts.events.embeddings import FILE_EMBEDDED
from contracts.events.envelope import Event, read_event
from contracts.events.files import FILE_DELETED, FILE_UPLOADED
from contracts.events.topics import EMBEDDINGS_EVENTS, FILES_EVENTS
from services.chassis.messaging.kafka import client_options, new_producer
from services.chassis.messaging.outbox import new_event
from tests.faults.crash_points import CRASH_POINTS, CrashPoint
from tests.faults.fleet import LEASE_SECONDS, PATIENCE, ROLES, SWEEP_SECONDS, TENANT, Fleet, eventually, running_fleet
from tests.faults.links import Trap
from tests.faults.oracle import Reader, age_changes, settled, what_is_wrong, whole
from tests.faults.workload import Clients

pytestmark = pytest.mark.asyncio(loop_scope="module")

STEPS_OF_A_SHORT_RUN = {"files": 2, "embeddings": 2, "worker-1": 2}
_log = logging.getLogger(__name__)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with running_fleet(broker_kind, tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def clients(fleet: Fleet, pytestconfig: pytest.Config) -> Clients:
    """One truth for the whole fleet: what a test leaves behind must still be right after the next."""
    return Clients(fleet, pytestconfig.getoption("faults_seed"))


@pytest.fixture
def chance(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> random.Random:
    return random.Random(f"{pytestconfig.getoption('faults_seed')} {request.node.name}")


def chosen_points(chance: random.Random, *, long: bool) -> dict[str, list[CrashPoint]]:
    by_role: dict[str, list[CrashPoint]] = defaultdict(list)
    for point in CRASH_POINTS:
        by_role[point.role].append(point)
    return {
        role: chance.sample(points, len(points) if long else STEPS_OF_A_SHORT_RUN[role])
        for role, points in by_role.items()
    }


async def test_processes_killed_at_named_steps_lose_and_double_nothing(
    fleet: Fleet, clients: Clients, chance: random.Random, pytestconfig: pytest.Config
) -> None:
    reader = Reader(fleet)
    points = chosen_points(chance, long=pytestconfig.getoption("faults_long"))

    async def crash(point: CrashPoint) -> None:
        member = fleet.members[point.role]
        link = fleet.kafka_link if point.on_broker else member.database
        trap = Trap(point.matches, point.when, member.kill, with_rows=point.with_rows)
        try:
            await link.closed(trap, PATIENCE)
        except TimeoutError:
            pytest.fail(f"the step was never reached: {point.name}")
        _log.info("killed at: %s", point.name)

    async with reader.watching():
        async with clients.at_work():
            # In rounds: a worker that waits for what others bring waits for the end of one kill of each, not of all.
            for together in zip_longest(*points.values()):
                async with asyncio.TaskGroup() as group:
                    for point in filter(None, together):
                        group.create_task(crash(point))
        await settled(fleet, clients.truth)

    assert reader.faults == []
    assert fleet.breakdowns() == []
    embedded = {event.aggregate_id: event for event in await announced(fleet) if event.type == FILE_EMBEDDED}
    assert embedded.keys() >= {file_id for file_id, (_, version) in clients.truth.files.items() if version is not None}
    # The worker whose clock is a day ahead did its part, and nothing else is to be seen of it.
    assert any(event.time > datetime.now(UTC) + timedelta(hours=12) for event in embedded.values())


async def announced(fleet: Fleet) -> list[Event]:
    """All that the embeddings service has published."""
    partitions = [TopicPartition(EMBEDDINGS_EVENTS.name, number) for number in range(EMBEDDINGS_EVENTS.partitions)]
    async with AIOKafkaConsumer(auto_offset_reset="earliest", **client_options(fleet.kafka)) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        events: list[Event] = []
        async with asyncio.timeout(PATIENCE):
            while any([await consumer.position(partition) < end for partition, end in ends.items()]):
                batches = await consumer.getmany(timeout_ms=100)
                events += [read_event(it.headers, it.value) for batch in batches.values() for it in batch]
        return events


async def test_servers_that_go_and_events_that_stray_lose_and_double_nothing(
    fleet: Fleet, clients: Clients, chance: random.Random, pytestconfig: pytest.Config
) -> None:
    reader = Reader(fleet)
    storm = Storm(fleet, clients, chance)
    rounds = 4 if pytestconfig.getoption("faults_long") else 1
    async with reader.watching():
        async with clients.at_work():
            for fault in [fault for _ in range(rounds) for fault in chance.sample(storm.faults, len(storm.faults))]:
                _log.info("%s", fault.__name__)
                await fault()
                await asyncio.sleep(chance.uniform(0.2, 1.0))
        await age_changes(fleet)
        await settled(fleet, clients.truth)

    assert reader.faults == []
    assert fleet.breakdowns() == []
    assert (await fleet.embeddings.post("/sweep")).json()["total"] == 0


async def test_a_rolling_restart_under_load_loses_and_repeats_nothing(fleet: Fleet, clients: Clients) -> None:
    reader = Reader(fleet)
    strangers = await files_nobody_knows(fleet, clients)
    (began,) = await fleet.query("SELECT now()")
    async with reader.watching():
        async with clients.at_work(), searching(fleet) as statuses:
            for role in ROLES:
                await fleet.members[role].restart()
        await settled(fleet, clients.truth)

    assert reader.faults == []
    assert fleet.breakdowns() == []
    assert statuses.keys() <= {200, 503}
    assert statuses[200] > 0
    # Every request that was taken was answered, so no client had to register a file twice.
    assert await files_nobody_knows(fleet, clients) == strangers
    # What was in hand was finished or given back: nobody had to wait for the end of a lease.
    assert await fleet.query(TRIED_AGAIN, began[0]) == []


TRIED_AGAIN = """
SELECT file_id, attempts, error_code FROM module_embeddings_files_file WHERE attempts > 1 AND updated_at > $1
"""


async def files_nobody_knows(fleet: Fleet, clients: Clients) -> set[int]:
    rows = await fleet.query("SELECT id FROM module_files_file")
    return {row["id"] for row in rows} - clients.truth.files.keys()


@asynccontextmanager
async def searching(fleet: Fleet) -> AsyncIterator[Counter[int]]:
    """Ask all the time, and count the answers by status. A connection closed before it was used says nothing."""
    statuses: Counter[int] = Counter()

    async def ask() -> None:
        while True:
            with suppress(httpx2.TransportError):
                answer = await fleet.search.post("/api/web/embeddings/files/search", json={"query": "la bomba"})
                statuses[answer.status_code] += 1
            await asyncio.sleep(0.05)

    asking = asyncio.create_task(ask())
    try:
        yield statuses
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert asking.cancelled(), asking.exception()


class Storm:
    """Faults that need no exact moment, each taken back before it returns."""

    def __init__(self, fleet: Fleet, clients: Clients, chance: random.Random) -> None:
        self._fleet = fleet
        self._clients = clients
        self._chance = chance
        self.faults: list[Callable[[], Awaitable[None]]] = [
            self.a_process_is_killed,
            self.connections_are_cut_one_after_another,
            self.connections_go_silent,
            self.the_database_crashes,
            self.the_database_restarts,
            self.the_broker_comes_back_empty_and_events_were_dropped,
            self.events_come_twice_and_in_any_order,
            self.events_come_after_the_sweep,
            self.the_storage_is_full,
            self.a_worker_sleeps_longer_than_its_lease,
        ]

    async def a_process_is_killed(self) -> None:
        self._fleet.members[self._chance.choice(ROLES)].kill()

    async def connections_are_cut_one_after_another(self) -> None:
        rows = await self._fleet.query(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        for row in rows:
            await self._fleet.query("SELECT pg_terminate_backend($1)", row["pid"])
            await asyncio.sleep(0.02)

    async def connections_go_silent(self) -> None:
        for member in self._fleet.members.values():
            member.database.silence()

    async def the_database_crashes(self) -> None:
        await self._fleet.blocking(self._fleet.postgres.kill)
        await asyncio.sleep(0.5)
        await self._fleet.blocking(self._fleet.postgres.start)

    async def the_database_restarts(self) -> None:
        await self._fleet.blocking(self._fleet.postgres.stop)
        await self._fleet.blocking(self._fleet.postgres.start)

    async def the_broker_comes_back_empty_and_events_were_dropped(self) -> None:
        await self._fleet.blocking(self._fleet.broker.kill)
        await asyncio.sleep(1.5)
        await self._fleet.query("DELETE FROM module_files_outbox WHERE random() < 0.5")
        await self._fleet.broker_comes_back_empty()

    async def events_come_twice_and_in_any_order(self) -> None:
        types = (FILE_UPLOADED, FILE_DELETED)
        events = [new_event(type_, file_id, "", TENANT) for file_id in self._clients.truth.files for type_ in types] * 2
        self._chance.shuffle(events)
        async with new_producer(self._fleet.kafka) as producer:
            for event in events:
                headers = [(name, text.encode()) for name, text in event.headers().items()]
                await producer.send(FILES_EVENTS.name, event.value(), key=event.key.encode(), headers=headers)

    async def events_come_after_the_sweep(self) -> None:
        self._fleet.kafka_link.passable.clear()
        await asyncio.sleep(SWEEP_SECONDS + 1)
        self._fleet.kafka_link.passable.set()

    async def the_storage_is_full(self) -> None:
        before = self._clients.refusals["STORAGE_UNAVAILABLE"]

        async def is_noticed() -> bool:
            self._fleet.fill_storage()
            return self._clients.refusals["STORAGE_UNAVAILABLE"] > before

        await eventually(is_noticed)
        self._fleet.free_storage()

    async def a_worker_sleeps_longer_than_its_lease(self) -> None:
        worker = self._fleet.members["worker-1"]
        worker.pause()
        await asyncio.sleep(LEASE_SECONDS + 1)
        worker.go_on()


CORRUPTIONS = {
    "has the chunks": "DELETE FROM module_embeddings_file_chunk WHERE file_id = $1 AND position = 0",
    "no end state": "UPDATE module_embeddings_files_file SET status = 'FAILED', error_code = 'X' WHERE file_id = $1",
    "is lost": "UPDATE module_files_file SET sha256 = '' WHERE id = $1",
    "storage keys set aside": "INSERT INTO module_files_garbage VALUES ($1::bigint::text, now() + interval '1 day')",
}


async def test_the_oracle_sees_what_is_wrong(fleet: Fleet, clients: Clients) -> None:
    """The last test: nobody repairs what it breaks."""
    for member in fleet.members.values():
        member.pause()
    assert await what_is_wrong(fleet, clients.truth) == []
    (file_id, *_) = [file_id for file_id, (_, version) in clients.truth.files.items() if version is not None]
    for words, corruption in CORRUPTIONS.items():
        await fleet.query(corruption, file_id)
        assert any(words in wrong for wrong in await what_is_wrong(fleet, clients.truth)), words
    await fleet.query("UPDATE module_embeddings_tag SET embedding_text = 'older', text_hash = sha256('older')")
    (fleet.storage / "stray").write_bytes(b"")
    wrong = await what_is_wrong(fleet, clients.truth)
    assert any("has the texts ['older']" in one for one in wrong)
    assert "object stray that no file points to" in wrong

    reader = Reader(fleet)
    reader.check({1: whole(1, 6), 2: whole(2, 7)})
    assert reader.faults == []
    reader.check({1: whole(1, 5), 2: [*whole(2, 7)[:-1], (2, 8, 3)]})
    assert [fault.split(":")[0] for fault in reader.faults] == ["file 1", "file 2 is mixed"]
