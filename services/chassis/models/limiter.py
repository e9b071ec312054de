"""When a call to a model may start: so many at once, so much a minute, none while the provider asks to wait or is out.

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

from services.chassis.kernel.backoff import backoff
from services.chassis.models.telemetry import observed_wait

SLOT_POLL_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 300.0
"""A provider that asks for more is asked again after this: one answer must not stop the work for days."""
OUTAGE_BASE_SECONDS = 1.0


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
        fault: why the provider is out, if it is.
    """

    seconds: float
    asked: bool = False
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Ticket:
    """A slot for a call.

    Attributes:
        id: of the slot.
        is_trial: whether the provider was out, and this call is the only one, to find out whether it still is.
    """

    id: UUID
    is_trial: bool = False


class CallQuota(Protocol):
    """What calls to models used up. Providers count by model, so one model's pause does not stop another.

    A model whose provider is out is left alone, then tried by one call at a time, until one is answered well.
    """

    async def reserve(self, model: str, cost: Cost, lease_seconds: float) -> Ticket | Wait:
        """Take a slot and the cost for a call, or say how long there is none.

        The ticket holds the slot until it is released; after the lease it holds nothing, whatever became of the caller.
        """

    async def release(self, model: str, ticket: Ticket, *, answered: bool) -> None:
        """Give the slot back. ``answered`` says that the provider answered well: then it is out no more."""

    async def pause(self, model: str, seconds: float) -> None:
        """Let no call start before so many seconds from now have passed."""

    async def suspend(self, model: str, fault: str, longest_seconds: float) -> float:
        """Note that the provider is out. Return for how many seconds no call may start.

        They double with each trial in vain, up to ``longest_seconds``; what fails during them does not add to them.
        """


class ProcessQuota:
    """The quota of a process for itself: so many calls at once to a model, and the pauses that it was asked for."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._under_way: defaultdict[str, set[UUID]] = defaultdict(set)
        self._resume_at: defaultdict[str, float] = defaultdict(float)
        self._outages: dict[str, _Outage] = {}

    async def reserve(self, model: str, cost: Cost, lease_seconds: float) -> Ticket | Wait:  # noqa: ARG002
        """Take a slot. Costs are not counted, and no slot outlives its process."""
        now = asyncio.get_running_loop().time()
        outage = self._outages.get(model)
        if outage is not None and outage.until > now:
            return Wait(outage.until - now, asked=True, fault=outage.fault)
        if self._resume_at[model] > now:
            return Wait(self._resume_at[model] - now, asked=True)
        if len(self._under_way[model]) >= (1 if outage else self._concurrency):
            return Wait(0)
        ticket = Ticket(uuid4(), is_trial=outage is not None)
        self._under_way[model].add(ticket.id)
        return ticket

    async def release(self, model: str, ticket: Ticket, *, answered: bool) -> None:
        """Give the slot back."""
        self._under_way[model].discard(ticket.id)
        if answered:
            self._outages.pop(model, None)

    async def pause(self, model: str, seconds: float) -> None:
        """Let no call start before so many seconds from now have passed."""
        self._resume_at[model] = max(self._resume_at[model], asyncio.get_running_loop().time() + seconds)

    async def suspend(self, model: str, fault: str, longest_seconds: float) -> float:
        """Note that the provider is out."""
        now = asyncio.get_running_loop().time()
        outage = self._outages.get(model)
        if outage is None or outage.until <= now:
            trials = outage.trials + 1 if outage else 0
            seconds = backoff(trials + 1, base_seconds=OUTAGE_BASE_SECONDS, cap_seconds=longest_seconds)
            outage = self._outages[model] = _Outage(now + seconds, trials, fault)
        return outage.until - now


@dataclass(frozen=True, slots=True)
class _Outage:
    until: float
    trials: int
    fault: str


class AskedToWaitError(TimeoutError):
    """The provider asks for a longer wait than there is time for."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the provider asks to wait {seconds:.0f} seconds")
        self.seconds = seconds


class ProviderOutError(Exception):
    """The provider fails at everything, and is left alone for so many seconds."""

    def __init__(self, seconds: float, fault: str) -> None:
        super().__init__(fault)
        self.seconds = seconds
        self.fault = fault


class Slot:
    """A place for a call that may start now.

    Attributes:
        is_trial: as of ``Ticket``.
        answered: for the caller to set when the provider answered well.
    """

    def __init__(self, *, is_trial: bool) -> None:
        self.is_trial = is_trial
        self.answered = False


class CallLimiter:
    """Lets the calls of this process start in turn, as the quota allows."""

    def __init__(
        self, quota: CallQuota, *, lease_seconds: float, longest_pause_seconds: float = LONGEST_PAUSE_SECONDS
    ) -> None:
        """State two lengths of time.

        Args:
            quota: what is asked.
            lease_seconds: longer than a call takes: the slot of a process that died is free again after it.
            longest_pause_seconds: the longest that the model is left alone, whatever its provider asks for.
        """
        self._quota = quota
        self._lease_seconds = lease_seconds
        self._longest_pause_seconds = longest_pause_seconds
        # One of this process asks at a time, for each model: a queue, and no crowd before the quota.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def slot(self, model: str, cost: Cost, *, longest_pause: float) -> AsyncIterator[Slot]:
        """Wait for a slot and hold it.

        Raises:
            AskedToWaitError: at once, when the provider asks for a longer pause than ``longest_pause`` seconds.
            ProviderOutError: at once, when the provider is out.
        """
        with observed_wait(model):
            ticket = await self._reserve(model, cost, longest_pause)
        slot = Slot(is_trial=ticket.is_trial)
        try:
            yield slot
        finally:
            await self._quota.release(model, ticket, answered=slot.answered)
            self._freed.set()

    async def pause(self, model: str, seconds: float) -> None:
        """Let no call start before so many seconds from now have passed, or the longest pause."""
        await self._quota.pause(model, min(seconds, self._longest_pause_seconds))

    async def suspend(self, model: str, fault: str) -> float:
        """Note that the provider is out. Return for how many seconds no call may start."""
        return await self._quota.suspend(model, fault, self._longest_pause_seconds)

    async def _reserve(self, model: str, cost: Cost, longest_pause: float) -> Ticket:
        async with self._turns[model]:
            while True:
                self._freed.clear()
                answer = await self._quota.reserve(model, cost, self._lease_seconds)
                if isinstance(answer, Ticket):
                    return answer
                if answer.fault is not None:
                    raise ProviderOutError(answer.seconds, answer.fault)
                if answer.asked and answer.seconds > longest_pause:
                    raise AskedToWaitError(answer.seconds)
                if answer.seconds > 0:
                    await asyncio.sleep(answer.seconds)
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._freed.wait(), SLOT_POLL_SECONDS)
