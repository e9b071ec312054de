"""What becomes of a claim, in every way a reconcile can end."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from services.chassis.kernel.errors import GoneError, InvalidInputError, UnavailableError
from services.chassis.models.failures import CallFailedError
from services.chassis.postgres.faults import TIMEOUT_PAUSE_SECONDS, DatabaseUnreachableError, passing_fault
from services.embeddings.application.process_claim import ProcessClaim
from services.embeddings.domain.errors import ExtractionError, LeaseLostError
from services.embeddings.domain.file_work import ClaimedFile
from tests.support.in_memory_work import InMemoryFileWork, claimed


def processor(work: InMemoryFileWork, fault: BaseException | None = None, *, lease_seconds: float = 60) -> ProcessClaim:
    async def embed_file(claim: ClaimedFile) -> None:
        if fault is not None:
            raise fault

    return ProcessClaim(embed_file, work, lease_seconds, max_attempts=3, on_fault=lambda claim, error: None)


async def test_a_reconcile_that_ends_well_needs_no_settling() -> None:
    work = InMemoryFileWork()
    await processor(work)(claimed())
    assert work.settled() == []


async def test_an_unreadable_document_fails_with_its_code() -> None:
    work = InMemoryFileWork()
    await processor(work, ExtractionError("ENCRYPTED", "needs a password"))(claimed())
    assert work.settled() == [("fail", "ENCRYPTED", "needs a password")]


async def test_a_file_whose_bytes_are_lost_fails_at_once() -> None:
    work = InMemoryFileWork()
    await processor(work, GoneError("CONTENT_MISSING", "the bytes are gone"))(claimed())
    assert work.settled() == [("fail", "CONTENT_MISSING", "the bytes are gone")]


async def test_a_provider_that_asks_to_wait_is_waited_for_without_spending_an_attempt() -> None:
    work = InMemoryFileWork()
    fault = UnavailableError("EMBEDDER_UNAVAILABLE", "429", retry_after=17)
    await processor(work, fault)(claimed(attempts=3))
    assert work.settled() == [("give_back", "EMBEDDER_UNAVAILABLE", 17, False)]


async def test_a_call_that_fails_each_time_spends_an_attempt() -> None:
    work = InMemoryFileWork()
    await processor(work, CallFailedError("EMBEDDER_UNAVAILABLE", "500 each time"))(claimed())
    assert work.settled()[0][1::2] == ("EMBEDDER_UNAVAILABLE", True)


async def test_a_text_that_the_model_refuses_fails_the_file_at_once() -> None:
    work = InMemoryFileWork()
    await processor(work, InvalidInputError("TEXT_TOO_LONG", "too long"))(claimed())
    assert work.settled() == [("fail", "TEXT_TOO_LONG", "too long")]


async def test_a_fault_gives_the_file_back_and_spends_an_attempt() -> None:
    work = InMemoryFileWork()
    await processor(work, RuntimeError("boom"))(claimed(attempts=2))
    ((name, code, delay, counts),) = work.settled()
    assert (name, code, counts) == ("give_back", "TRANSIENT_FAULT", True)
    assert 2 <= delay <= 4


async def test_a_fault_of_the_database_spends_no_attempt_and_is_written_once_the_database_is_there_again() -> None:
    away = 3

    class AwayWork(InMemoryFileWork):
        async def give_back(self, *arguments: Any, **options: Any) -> None:
            nonlocal away
            if away > 0:
                away -= 1
                raise ConnectionRefusedError
            await super().give_back(*arguments, **options)

    async def embed_file(claim: ClaimedFile) -> None:
        raise ConnectionRefusedError

    def passing(error: Exception) -> UnavailableError | None:
        return UnavailableError("DATABASE_UNAVAILABLE", "away") if isinstance(error, ConnectionError) else None

    work = AwayWork()
    await ProcessClaim(embed_file, work, 60, 3, lambda claim, error: None, passing, retry_seconds=0)(
        claimed(attempts=3)
    )
    assert away == 0
    assert work.settled()[0][1::2] == ("DATABASE_UNAVAILABLE", False)


class TimingOutWork(InMemoryFileWork):
    """A database that cancels some of the operations, by name."""

    def __init__(self, *slow: str) -> None:
        super().__init__()
        self.slow = slow

    def _fenced(self, claim: ClaimedFile, name: str, *arguments: object) -> None:
        if name in self.slow:
            raise asyncpg.QueryCanceledError("canceling statement due to statement timeout")
        super()._fenced(claim, name, *arguments)


@pytest.mark.parametrize(
    ("slow", "attempts", "end"),
    [
        (["complete"], 1, ("give_back", "DATABASE_TIMEOUT", TIMEOUT_PAUSE_SECONDS, True)),
        (["complete", "renew"], 1, ("give_back", "DATABASE_TIMEOUT", TIMEOUT_PAUSE_SECONDS, False)),
        (["complete"], 3, ("fail", "ATTEMPTS_EXHAUSTED")),
        (["complete", "renew"], 3, ("give_back", "DATABASE_TIMEOUT", TIMEOUT_PAUSE_SECONDS, False)),
        (["complete", "fail"], 3, ("give_back", "DATABASE_TIMEOUT", TIMEOUT_PAUSE_SECONDS, False)),
    ],
)
async def test_what_takes_the_database_too_long_spends_an_attempt_unless_all_else_does(
    slow: list[str], attempts: int, end: tuple[object, ...]
) -> None:
    work = TimingOutWork(*slow)

    async def embed_file(claim: ClaimedFile) -> None:
        work._fenced(claim, "complete")

    process = ProcessClaim(embed_file, work, 60, 3, lambda claim, error: None, passing_fault)
    await process(claimed(attempts=attempts))
    ((*settled,),) = work.settled()
    assert tuple(settled[: len(end)]) == end


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (DatabaseUnreachableError("refused"), "DATABASE_UNAVAILABLE"),
        (asyncpg.CannotConnectNowError("starting up"), "DATABASE_UNAVAILABLE"),
        (asyncpg.AdminShutdownError("terminated"), "DATABASE_UNAVAILABLE"),
        (asyncpg.ConnectionDoesNotExistError("cut"), "DATABASE_UNAVAILABLE"),
        (asyncpg.DeadlockDetectedError("deadlock"), "DATABASE_UNAVAILABLE"),
        (asyncpg.QueryCanceledError("statement timeout"), "DATABASE_TIMEOUT"),
        (asyncpg.UndefinedTableError("no such table"), "SCHEMA_MISSING"),
        (asyncpg.NumericValueOutOfRangeError("out of range"), None),
        (asyncpg.exceptions._base.DataError("invalid input"), None),
        (FileNotFoundError("of the storage"), None),
        (ValueError("of the code"), None),
    ],
)
def test_faults_of_the_database_are_told_from_those_of_what_is_worked_on(fault: Exception, code: str | None) -> None:
    passing = passing_fault(fault)
    assert (passing and passing.code) == code


async def test_the_last_attempt_fails_the_file_with_the_last_fault() -> None:
    work = InMemoryFileWork()
    await processor(work, RuntimeError("boom"))(claimed(attempts=3))
    ((name, code, message),) = work.settled()
    assert (name, code) == ("fail", "ATTEMPTS_EXHAUSTED")
    assert "RuntimeError: boom" in message


async def test_a_file_whose_workers_die_is_given_up_after_the_last_attempt() -> None:
    work = InMemoryFileWork()
    await processor(work)(claimed(attempts=4))
    assert work.settled()[0][:2] == ("fail", "ATTEMPTS_EXHAUSTED")


async def test_a_lost_lease_is_released_without_a_fault() -> None:
    work = InMemoryFileWork()
    await processor(work, LeaseLostError())(claimed())
    assert work.settled() == [("release",)]


async def test_losing_the_lease_ends_the_reconcile() -> None:
    work = InMemoryFileWork(lost={1})
    ended = asyncio.Event()

    async def endless(claim: ClaimedFile) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await ProcessClaim(endless, work, 0.03, max_attempts=3, on_fault=lambda claim, error: None)(claimed())

    assert ended.is_set()
    assert work.settled() == [("release",)]


async def test_the_lease_is_renewed_while_the_work_goes_on() -> None:
    work = InMemoryFileWork()

    async def until_renewed_twice(claim: ClaimedFile) -> None:
        async with asyncio.timeout(10):
            while len(work.done) < 2:
                await asyncio.sleep(0.005)

    await ProcessClaim(until_renewed_twice, work, 0.03, max_attempts=3, on_fault=lambda claim, error: None)(claimed())

    assert work.done[:2] == [("renew",), ("renew",)]


async def test_a_cancelled_worker_gives_its_file_back() -> None:
    work = InMemoryFileWork()

    async def endless(claim: ClaimedFile) -> None:
        await asyncio.Event().wait()

    process = ProcessClaim(endless, work, 60, max_attempts=3, on_fault=lambda claim, error: None)
    task = asyncio.create_task(process(claimed()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.settled() == [("release",)]
