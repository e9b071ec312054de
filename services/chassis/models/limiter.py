"""When a call to a model may start: so many at once, so much a minute, and none while the provider asks to wait.

What is used is counted by a ``CallQuota``: in this process, or where all processes that call the model see it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar, Protocol
from uuid import UUID, uuid4

from services.chassis.models.telemetry import observed_wait

SLOT_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call counts for in a quota. Providers count every text, not the call that carries it."""

    requests: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """What a provider allows for one model; None where it is not known, and the provider has to say when it is over."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        if any(rate is not None and rate < 1 for rate in (self.requests_per_minute, self.tokens_per_minute)):
            raise ValueError("a rate is 1 or more")


@dataclass(frozen=True, slots=True)
class Wait:
    """A call may not start yet.

    Attributes:
        seconds: when to ask again; 0 when a slot has to become free, which nobody can foretell.
        asked: whether the provider asked for this wait.
    """

    seconds: float
    asked: bool = False


class CallQuota(Protocol):
    """What calls to models used up. Providers count by model, so one model's pause does not stop another."""

    async def reserve(self, model: str, cost: Cost, lease_seconds: float) -> UUID | Wait:
        """Take a slot and the cost for a call, or say how long there is none.

        The ticket holds the slot until it is released; after the lease it holds nothing, whatever became of the caller.
        """

    async def release(self, model: str, ticket: UUID) -> None:
        """Give the slot back."""

    async def pause(self, model: str, seconds: float) -> None:
        """Let no call start before so many seconds from now have passed."""


class ProcessQuota:
    """The quota of a process for itself: so many calls at once to a model, and the pauses that it was asked for."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._under_way: defaultdict[str, set[UUID]] = defaultdict(set)
        self._resume_at: defaultdict[str, float] = defaultdict(float)

    async def reserve(self, model: str, cost: Cost, lease_seconds: float) -> UUID | Wait:  # noqa: ARG002
        """Take a slot. Costs are not counted, and no slot outlives its process."""
        pause = self._resume_at[model] - asyncio.get_running_loop().time()
        if pause > 0:
            return Wait(pause, asked=True)
        if len(self._under_way[model]) >= self._concurrency:
            return Wait(0)
        ticket = uuid4()
        self._under_way[model].add(ticket)
        return ticket

    async def release(self, model: str, ticket: UUID) -> None:
        """Give the slot back."""
        self._under_way[model].discard(ticket)

    async def pause(self, model: str, seconds: float) -> None:
        """Let no call start before so many seconds from now have passed."""
        self._resume_at[model] = max(self._resume_at[model], asyncio.get_running_loop().time() + seconds)


class AskedToWaitError(TimeoutError):
    """The provider asks for a longer wait than there is time for."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the provider asks to wait {seconds:.0f} seconds")
        self.seconds = seconds


class CallLimiter:
    """Lets the calls of this process start in turn, as the quota allows."""

    def __init__(self, quota: CallQuota, *, lease_seconds: float) -> None:
        """``lease_seconds`` is longer than a call takes: the slot of a process that died is free again after it."""
        self._quota = quota
        self._lease_seconds = lease_seconds
        # One of this process asks at a time, for each model: a queue, and no crowd before the quota.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def slot(self, model: str, cost: Cost, *, longest_pause: float) -> AsyncIterator[None]:
        """Wait for a slot and hold it.

        Raises:
            AskedToWaitError: at once, when the provider asks for a longer pause than ``longest_pause`` seconds.
        """
        with observed_wait(model):
            ticket = await self._reserve(model, cost, longest_pause)
        try:
            yield
        finally:
            await self._quota.release(model, ticket)
            self._freed.set()

    async def pause(self, model: str, seconds: float) -> None:
        """Let no call start before so many seconds from now have passed."""
        await self._quota.pause(model, seconds)

    async def _reserve(self, model: str, cost: Cost, longest_pause: float) -> UUID:
        async with self._turns[model]:
            while True:
                self._freed.clear()
                answer = await self._quota.reserve(model, cost, self._lease_seconds)
                if not isinstance(answer, Wait):
                    return answer
                if answer.asked and answer.seconds > longest_pause:
                    raise AskedToWaitError(answer.seconds)
                if answer.seconds > 0:
                    await asyncio.sleep(answer.seconds)
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._freed.wait(), SLOT_POLL_SECONDS)
