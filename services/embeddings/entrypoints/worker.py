"""The worker's loop: claims files and has each processed, a few at once, until it is told to stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from opentelemetry import metrics, propagate, trace

from services.chassis.observability import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY
from services.embeddings.application.ports import FileWork
from services.embeddings.domain.file_work import ClaimedFile

RETRY_SECONDS = 2.0

_log = get_logger(__name__)
_tracer = trace.get_tracer("cauce")
_duration = metrics.get_meter("cauce").create_histogram(
    "cauce.file.duration", unit="s", description="From the claim of a file to its end"
)


class Worker:
    """Keeps up to ``concurrency`` files in hand."""

    def __init__(
        self,
        work: FileWork,
        process: Callable[[ClaimedFile], Awaitable[None]],
        *,
        concurrency: int,
        poll_seconds: float,
        shutdown_seconds: float,
    ) -> None:
        self._work = work
        self._process = process
        self._concurrency = concurrency
        self._poll_seconds = poll_seconds
        self._shutdown_seconds = shutdown_seconds
        self._in_hand: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; then finish what is in hand within the stated time, or give it back."""
        stopping = asyncio.ensure_future(stop.wait())
        while not stop.is_set():
            claimed = await self._claim(self._concurrency - len(self._in_hand))
            for claim in claimed:
                task = asyncio.create_task(self._run_one(claim))
                self._in_hand.add(task)
                task.add_done_callback(self._in_hand.discard)
            busy = len(self._in_hand) == self._concurrency
            await asyncio.wait(
                {stopping, *self._in_hand},
                timeout=None if busy else self._poll_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        if self._in_hand:
            _, unfinished = await asyncio.wait(self._in_hand, timeout=self._shutdown_seconds)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    async def _claim(self, limit: int) -> list[ClaimedFile]:
        try:
            return await self._work.claim(limit)
        except DATABASE_AWAY as error:
            _log.warning("claim_failed", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(RETRY_SECONDS)
            return []

    async def _run_one(self, claim: ClaimedFile) -> None:
        parent = propagate.extract({"traceparent": claim.traceparent} if claim.traceparent else {})
        attributes = {"cauce.file.id": claim.file_id, "cauce.attempt": claim.attempts}
        started = time.monotonic()
        with _tracer.start_as_current_span("embed file", context=parent, attributes=attributes):
            try:
                await self._process(claim)
            except DATABASE_AWAY as error:
                # The lease runs out and the file is claimed again, here or elsewhere.
                _log.warning("file_not_settled", file_id=claim.file_id, error=f"{type(error).__name__}: {error}")
            _log.info("file_processed", file_id=claim.file_id, seconds=round(time.monotonic() - started, 3))
        _duration.record(time.monotonic() - started)


def log_fault(claim: ClaimedFile, error: BaseException) -> None:
    """Say why a file goes back to the queue."""
    _log.warning(
        "file_interrupted", file_id=claim.file_id, attempt=claim.attempts, error=f"{type(error).__name__}: {error}"
    )
