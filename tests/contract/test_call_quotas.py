"""What every quota of calls promises, and what the one that all workers share does besides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import asyncpg
import pytest

from services.chassis.models.limiter import (
    AskedToWaitError,
    CallLimiter,
    CallQuota,
    Cost,
    ProcessQuota,
    Rates,
    Ticket,
    Wait,
)
from services.chassis.postgres.pool import create_pool
from services.embeddings.adapters.postgres.call_quota import PostgresCallQuota
from tests.support.postgres import Database

MODEL, OTHER = "gemini-embedding-001", "gemini-3.5-flash"
ONE = Cost(1, 10)
LEASE = 60.0


@dataclass
class Workers:
    """Quotas of several processes, each with its own way to the database."""

    stack: AsyncExitStack
    database: Database

    async def quota(self, concurrency: int = 2, **rates: int) -> PostgresCallQuota:
        pool = await create_pool(self.database.embeddings_url, application_name="test")
        self.stack.push_async_callback(pool.close)
        return PostgresCallQuota(pool, concurrency=concurrency, rates={MODEL: Rates(**rates)} if rates else {})


@pytest.fixture
async def workers(database: Database) -> AsyncIterator[Workers]:
    async with AsyncExitStack() as stack:
        yield Workers(stack, database)


@pytest.fixture(params=["process", "postgres"])
async def quota(request: pytest.FixtureRequest, workers: Workers) -> CallQuota:
    return ProcessQuota(2) if request.param == "process" else await workers.quota(2)


async def ticket(quota: CallQuota, cost: Cost = ONE, lease_seconds: float = LEASE) -> Ticket:
    answer = await quota.reserve(MODEL, cost, lease_seconds)
    assert isinstance(answer, Ticket), answer
    return answer


async def wait(quota: CallQuota, cost: Cost = ONE) -> Wait:
    answer = await quota.reserve(MODEL, cost, LEASE)
    assert isinstance(answer, Wait)
    return answer


@pytest.fixture
async def pair(quota: CallQuota, workers: Workers) -> tuple[CallQuota, CallQuota]:
    """Two that share it."""
    return quota, quota if isinstance(quota, ProcessQuota) else await workers.quota(2)


async def test_no_more_calls_are_under_way_than_there_are_slots(pair: tuple[CallQuota, CallQuota]) -> None:
    one, other = pair
    first = await ticket(one)
    await ticket(other)
    assert await wait(one) == await wait(other) == Wait(0)

    await one.release(MODEL, first, answered=True)
    await ticket(other)
    assert await wait(one) == Wait(0)


async def test_of_many_that_ask_at_once_as_many_start_as_there_are_slots(pair: tuple[CallQuota, CallQuota]) -> None:
    answers = await asyncio.gather(*(quota.reserve(MODEL, ONE, LEASE) for quota in pair * 10))
    assert sum(isinstance(answer, Ticket) for answer in answers) == 2


async def test_a_pause_holds_for_everyone_who_calls_the_model_and_for_no_other(
    pair: tuple[CallQuota, CallQuota],
) -> None:
    one, other = pair
    await one.release(MODEL, await ticket(one), answered=True)
    await one.pause(MODEL, 600)
    await other.pause(MODEL, 1)

    for quota in pair:
        asked = await wait(quota)
        assert asked.asked
        assert 500 < asked.seconds <= 600
    assert isinstance(await other.reserve(OTHER, ONE, LEASE), Ticket)


async def test_a_longer_pause_than_there_is_time_for_is_handed_to_the_caller(quota: CallQuota) -> None:
    limiter = CallLimiter(quota, lease_seconds=LEASE)
    async with limiter.slot(MODEL, ONE, longest_pause=10):
        await limiter.pause(MODEL, 200)
    with pytest.raises(AskedToWaitError) as caught:
        async with limiter.slot(MODEL, ONE, longest_pause=10):
            pass
    assert 190 < caught.value.seconds <= 200


@pytest.mark.parametrize("asked", [86_400.0, 1e15, 1e308])
async def test_a_provider_that_asks_to_be_left_alone_for_days_is_not_believed(quota: CallQuota, asked: float) -> None:
    limiter = CallLimiter(quota, lease_seconds=LEASE, longest_pause_seconds=60)
    async with limiter.slot(MODEL, ONE, longest_pause=10):
        await limiter.pause(MODEL, asked)
    assert 50 < (await wait(quota)).seconds <= 60


async def test_a_provider_that_is_out_is_left_alone_by_all_and_then_tried_by_one(
    pair: tuple[CallQuota, CallQuota],
) -> None:
    one, other = pair
    held = await ticket(one)
    assert 0 < await one.suspend(MODEL, "500 INTERNAL", 60) <= 1
    out = await wait(other)
    assert out.fault == "500 INTERNAL"
    assert isinstance(await other.reserve(OTHER, ONE, LEASE), Ticket)
    await one.release(MODEL, held, answered=False)

    await asyncio.sleep(out.seconds)
    trial = await ticket(other)
    assert trial.is_trial
    assert await wait(one) == Wait(0)
    await other.release(MODEL, trial, answered=True)
    assert not (await ticket(one)).is_trial
    await ticket(other)


async def test_what_fails_in_an_outage_adds_nothing_and_a_trial_in_vain_doubles_the_pause(
    pair: tuple[CallQuota, CallQuota],
) -> None:
    one, other = pair
    held = await ticket(one)
    assert await one.suspend(MODEL, "500", 60) <= 1
    for _ in range(3):
        assert await other.suspend(MODEL, "502", 60) <= 1
    assert (await wait(other)).fault == "500"
    await asyncio.sleep((await wait(one)).seconds)
    assert 0.5 < await one.suspend(MODEL, "503", 60) <= 2
    await one.release(MODEL, held, answered=True)
    assert not (await ticket(other)).is_trial


async def test_calls_of_a_process_wait_for_one_another_in_turn(quota: CallQuota) -> None:
    limiter = CallLimiter(quota, lease_seconds=LEASE)
    started: list[int] = []

    async def call(number: int) -> None:
        async with limiter.slot(MODEL, ONE, longest_pause=10):
            started.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*map(call, range(20)))
    assert started == list(range(20))


async def test_a_slot_of_a_worker_that_died_is_free_after_its_lease(workers: Workers) -> None:
    dead, alive = await workers.quota(1), await workers.quota(1)
    lost = await ticket(dead, lease_seconds=0)

    await ticket(alive)
    await dead.release(MODEL, lost, answered=True)
    assert await wait(alive) == Wait(0)


async def test_a_rate_holds_for_all_workers_together_and_says_when_there_is_more(workers: Workers) -> None:
    one, other = await workers.quota(100, requests_per_minute=20), await workers.quota(100, requests_per_minute=20)
    # A tenth of a minute's may go ahead.
    await ticket(one)
    await ticket(other)
    for quota in (one, other):
        refused = await wait(quota)
        assert not refused.asked
        assert 0 < refused.seconds <= 3


async def test_a_call_that_is_more_than_may_go_ahead_goes_when_nothing_was_used_and_is_paid_off(
    workers: Workers,
) -> None:
    quota = await workers.quota(100, tokens_per_minute=6_000)
    await ticket(quota, Cost(1, 6_000))
    assert 50 < (await wait(quota, Cost(1, 10))).seconds < 60


async def test_rates_of_a_model_say_nothing_of_another(workers: Workers) -> None:
    quota = await workers.quota(100, requests_per_minute=1)
    await ticket(quota)
    assert (await wait(quota)).seconds > 0
    for _ in range(20):
        assert isinstance(await quota.reserve(OTHER, ONE, LEASE), Ticket)


async def test_a_database_that_went_away_during_a_call_does_not_cost_its_answer(workers: Workers) -> None:
    quota = await workers.quota()
    held = await ticket(quota)
    admin = await asyncpg.connect(workers.database.admin_url)
    await admin.execute(f"ALTER DATABASE {workers.database.name} CONNECTION LIMIT 0")
    await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test'")
    await admin.close()
    await quota.release(MODEL, held, answered=True)
