"""The worker's loop: claims work and has it processed, a few at once, until it is told to stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from opentelemetry import metrics, propagate, trace

from services.chassis.observability import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY, NOT_MIGRATED
from services.chassis.stopping import end, pause
from services.embeddings.application.process_claim import C
from services.embeddings.domain.file_work import ClaimedFile
from services.embeddings.domain.resource_work import ClaimedBatch

RETRY_SECONDS = 2.0
STALLED_AFTER_SECONDS = 5.0
"""A claim takes milliseconds; one that takes longer than this waits for something that is not right."""

_PASSING = (*DATABASE_AWAY, *NOT_MIGRATED)
"""What is no fault of the work, and of which who opens the workers takes care."""

C_co = TypeVar("C_co", covariant=True)

_log = get_logger(__name__)
_tracer = trace.get_tracer("cauce")
_meter = metrics.get_meter("cauce")


@dataclass(frozen=True, slots=True)
class Label:
    """How a claim is called in logs and traces: some attributes, and the traces that asked for it."""

    attributes: Mapping[str, str | int]
    traceparents: tuple[str | None, ...]

    @classmethod
    def of_file(cls, claim: ClaimedFile) -> Label:
        """The label of a file."""
        return cls({"file_id": claim.file_id, "attempt": claim.attempts}, (claim.traceparent,))

    @classmethod
    def of_batch(cls, claim: ClaimedBatch) -> Label:
        """The label of a batch of resources."""
        attributes: dict[str, str | int] = {
            "type": claim.entity_type,
            "resources": len(claim.resources),
            "attempt": claim.attempts,
        }
        return cls(attributes, tuple(resource.traceparent for resource in claim.resources))


class Queue(Protocol[C_co]):
    """Where work comes from."""

    async def claim(self, limit: int, *, large: int) -> Sequence[C_co]:
        """Take up to ``limit`` claims that want work, each under a lease, at most ``large`` of them large ones."""


class Worker(Generic[C]):
    """Keeps up to ``concurrency`` claims of one kind in hand, the last place for what is not large.

    Each kind of work has a worker of its own, so that a long document never holds up the resources, nor they it.
    """

    def __init__(
        self,
        queue: Queue[C],
        process: Callable[[C], Awaitable[None]],
        *,
        kind: str,
        label: Callable[[C], Label],
        concurrency: int,
        poll_seconds: float,
        shutdown_seconds: float,
        is_held: Callable[[], bool] = lambda: False,
    ) -> None:
        """``kind`` names the work in logs, spans and metrics; while ``is_held`` nothing more is taken in hand."""
        self._queue = queue
        self._process = process
        self._kind = kind
        self._label = label
        self._concurrency = concurrency
        self._poll_seconds = poll_seconds
        self._shutdown_seconds = shutdown_seconds
        self._is_held = is_held
        self._large_places = max(1, concurrency - 1)
        self._in_hand: dict[asyncio.Task[None], C] = {}
        self._fault: str | None = None
        self._asked_at: float | None = None
        self._duration = _meter.create_histogram(
            f"cauce.{kind}.duration", unit="s", description=f"From the claim of a {kind} to its end"
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; then finish what is in hand within the stated time, or give it back.

        What cannot be given back in time is left to its lease.
        """
        stopping = asyncio.ensure_future(stop.wait())
        working = asyncio.ensure_future(self._work(stopping))
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({working}, timeout=self._shutdown_seconds)
            if working.done():
                await working
        finally:
            await end(working, stopping, *self._in_hand)

    async def _work(self, stopping: asyncio.Task[Literal[True]]) -> None:
        """Claim until that is done, then wait for what is in hand."""
        while not stopping.done():
            for claim in await self._claim():
                task = asyncio.create_task(self._run_one(claim))
                self._in_hand[task] = claim
                task.add_done_callback(self._in_hand.pop)
            busy = len(self._in_hand) == self._concurrency
            await asyncio.wait(
                {stopping, *self._in_hand},
                timeout=None if busy else self._poll_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        if self._in_hand:
            await asyncio.wait(self._in_hand)

    @property
    def fault(self) -> str | None:
        """Why nothing can be claimed, None when it can."""
        waits = 0.0 if self._asked_at is None else time.monotonic() - self._asked_at
        if self._fault is None and waits > STALLED_AFTER_SECONDS:
            return f"the database has not answered for {waits:.0f} seconds"
        return self._fault

    async def _claim(self) -> Sequence[C]:
        if self._is_held():
            return []
        large = self._large_places - sum(claim.is_large for claim in self._in_hand.values())
        self._asked_at = time.monotonic()
        try:
            claimed = await self._queue.claim(self._concurrency - len(self._in_hand), large=large)
        except Exception as error:  # noqa: BLE001 - whatever it was, what is in hand goes on, and it is tried again
            self._fault = f"{type(error).__name__}: {error}"
            known = isinstance(error, _PASSING)
            _log.warning("claim_failed", kind=self._kind, error=self._fault, exc_info=not known)
            await pause(RETRY_SECONDS)
            return []
        finally:
            self._asked_at = None
        self._fault = None
        return claimed

    async def _run_one(self, claim: C) -> None:
        label = self._label(claim)
        started = time.monotonic()
        with _start_span(f"embed {self._kind}", label):
            try:
                await self._process(claim)
            except _PASSING as error:
                # The lease runs out and the work is claimed again, here or elsewhere.
                fault = f"{type(error).__name__}: {error}"
                _log.warning(f"{self._kind}_not_settled", **label.attributes, error=fault)
            _log.info(f"{self._kind}_processed", **label.attributes, seconds=round(time.monotonic() - started, 3))
        self._duration.record(time.monotonic() - started)


class Loop(Protocol):
    """Something that runs until it is told to stop."""

    @property
    def fault(self) -> str | None:
        """Why it does not get on, None when it does."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set."""


class SpaceBuilder:
    """Builds the space beside the active one, batch by batch, for as long as something is missing in it."""

    def __init__(self, build: Callable[[], Awaitable[float | None]], *, idle_seconds: float) -> None:
        """``build`` makes a batch; it says after how many seconds to look again, None where there was nothing to do."""
        self._build = build
        self._idle_seconds = idle_seconds
        self._fault: str | None = None

    @property
    def fault(self) -> str | None:
        """Why nothing can be claimed, None when it can."""
        return self._fault

    async def run(self, stop: asyncio.Event) -> None:
        """Build until ``stop`` is set. What is in hand then is given up: its lease runs out."""
        building, stopping = asyncio.ensure_future(self._keep_building()), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({building, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if building.done():
                await building
        finally:
            await end(building, stopping)

    async def _keep_building(self) -> None:
        while True:
            try:
                seconds = await self._build()
                self._fault = None
            except _PASSING as error:
                self._fault = f"{type(error).__name__}: {error}"
                _log.warning("build_failed", error=self._fault)
                seconds = RETRY_SECONDS
            await pause(self._idle_seconds if seconds is None else seconds)


class WorkerGroup:
    """Workers of several kinds in one process. When one breaks, all end."""

    def __init__(
        self,
        open_workers: Callable[[], Awaitable[tuple[Sequence[Loop], Callable[[], Awaitable[None]]]]],
        *,
        waits_for: Callable[[], str],
        waits: Callable[[], Awaitable[Mapping[str, str]]],
    ) -> None:
        """``open_workers`` may wait for what the workers need, as long as it takes; ``waits_for`` says what it is.

        It gives the workers, and what returns when others are needed in their place. ``waits`` tells which of
        their models are out, or have to be left alone.
        """
        self.waits = waits
        self._open_workers = open_workers
        self._waits_for = waits_for
        self._workers: Sequence[Loop] | None = None

    async def fault(self) -> str | None:
        """Why nothing is done now, None when the workers work."""
        if self._workers is None:
            return self._waits_for()
        return next((worker.fault for worker in self._workers if worker.fault is not None), None)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set."""
        while not stop.is_set():
            await self._run_once(stop)

    async def _run_once(self, stop: asyncio.Event) -> None:
        self._workers = None
        opening, stopping = asyncio.ensure_future(self._open_workers()), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                return
            self._workers, replaced = await opening
        finally:
            await end(opening, stopping)
        _log.info("worker_ready")
        turn = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for worker in self._workers:
                group.create_task(worker.run(turn))
            group.create_task(_set_after(turn, stop.wait(), replaced()))


async def _set_after(event: asyncio.Event, *either: Awaitable[object]) -> None:
    """Set the event as soon as one of them returns."""
    tasks = [asyncio.ensure_future(one) for one in either]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        event.set()
    finally:
        await end(*tasks)


def log_fault(kind: str, label: Callable[[C], Label]) -> Callable[[C, BaseException], None]:
    """A function that says why a claim goes back to the queue."""

    def log(claim: C, error: BaseException) -> None:
        _log.warning(f"{kind}_interrupted", **label(claim).attributes, error=f"{type(error).__name__}: {error}")

    return log


def _start_span(name: str, label: Label) -> AbstractContextManager[trace.Span]:
    """A span below the trace that asked; where several asked, of its own, with a link to each."""
    contexts = [propagate.extract({"traceparent": parent}) for parent in dict.fromkeys(label.traceparents) if parent]
    attributes = {f"cauce.{key}": value for key, value in label.attributes.items()}
    if len(contexts) == 1:
        return _tracer.start_as_current_span(name, context=contexts[0], attributes=attributes)
    links = [trace.Link(trace.get_current_span(context).get_span_context()) for context in contexts]
    return _tracer.start_as_current_span(name, attributes=attributes, links=links)
