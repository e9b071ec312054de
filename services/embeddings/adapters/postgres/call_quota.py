"""The quota of models that all workers share: one row a model, by the database's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from uuid import uuid4

import asyncpg
from opentelemetry import metrics

from services.chassis.models.limiter import OUTAGE_BASE_SECONDS, Cost, Rates, Ticket, Wait
from services.chassis.observability import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY
from services.chassis.postgres.queries import load_query

AHEAD_SECONDS = 6.0
"""How much of a rate may be used at once: a tenth of a minute's, so that no minute has more than 110 % of it."""
DESCRIBE_SECONDS = 2.0

_PACKAGE = "services.embeddings"
_log = get_logger(__name__)
_out = metrics.get_meter("cauce").create_gauge(
    "cauce.model.out", description="Whether the model's provider is out, as this process saw it last"
)


class PostgresCallQuota:
    """Implements the CallQuota port. Workers state their limits with each call, so they should state the same.

    Args:
        pool: of the embeddings service's role.
        concurrency: calls to a model under way at once, of all workers.
        rates: what they may use of a model, by its id.
    """

    def __init__(self, pool: asyncpg.Pool, *, concurrency: int, rates: Mapping[str, Rates]) -> None:
        self._pool = pool
        self._concurrency = concurrency
        self._rates = rates
        self._out_until: dict[str, float] = {}

    def is_out(self, model: str) -> bool:
        """Whether this process knows that the model's provider is out and is not to be tried yet."""
        return self._out_until.get(model, 0.0) > asyncio.get_running_loop().time()

    async def describe(self) -> dict[str, str]:
        """What is to be said of the models that are out or left alone; nothing while the database is away."""
        try:
            async with asyncio.timeout(DESCRIBE_SECONDS):
                rows = await self._pool.fetch(load_query(_PACKAGE, "list_waits"))
        except (*DATABASE_AWAY, asyncpg.PostgresError):
            return {}
        return {row["model"]: row["said"] for row in rows}

    async def reserve(self, model: str, cost: Cost, lease_seconds: float) -> Ticket | Wait:
        """Take a slot and the cost for a call, or say how long there is none."""
        rates = self._rates.get(model, Rates())
        taken = (
            _seconds(cost.requests, rates.requests_per_minute),
            _seconds(cost.tokens, rates.tokens_per_minute),
            AHEAD_SECONDS,
        )
        ticket = uuid4()
        query = load_query(_PACKAGE, "reserve_call")
        is_trial = await self._pool.fetchval(query, model, ticket, lease_seconds, *taken, self._concurrency)
        if is_trial is not None:
            return Ticket(ticket, is_trial=is_trial)
        wait = await self._pool.fetchrow(load_query(_PACKAGE, "find_call_wait"), model, *taken)
        if wait["out"] > 0:
            self._remember(model, wait["out"])
            return Wait(wait["out"], asked=True, fault=wait["out_fault"])
        return Wait(max(wait["asked"], wait["paced"]), asked=wait["asked"] > 0)

    async def release(self, model: str, ticket: Ticket, *, answered: bool) -> None:
        """Give the slot back. While the database is away its lease does."""
        if answered:
            self._remember(model, 0.0)
        try:
            await self._pool.execute(load_query(_PACKAGE, "release_call"), model, ticket.id, answered)
        except DATABASE_AWAY as error:
            _log.warning("call_not_released", model=model, error=f"{type(error).__name__}: {error}")

    async def pause(self, model: str, seconds: float) -> None:
        """Let no worker's call start before so many seconds from now have passed."""
        await self._pool.execute(load_query(_PACKAGE, "pause_calls"), model, seconds)

    async def suspend(self, model: str, fault: str, longest_seconds: float) -> float:
        """Note that the provider is out. Return for how many seconds no worker's call may start."""
        query = load_query(_PACKAGE, "suspend_calls")
        await self._pool.execute(query, model, fault, OUTAGE_BASE_SECONDS, longest_seconds)
        wait = await self._pool.fetchrow(load_query(_PACKAGE, "find_call_wait"), model, 0.0, 0.0, AHEAD_SECONDS)
        seconds: float = wait["out"]
        self._remember(model, seconds)
        return seconds

    def _remember(self, model: str, seconds: float) -> None:
        self._out_until[model] = asyncio.get_running_loop().time() + seconds
        _out.set(1 if seconds else 0, {"model": model})


def _seconds(count: int, per_minute: int | None) -> float:
    return 0.0 if per_minute is None else 60.0 * count / per_minute
