"""What becomes of a claim when its reconcile ends well, fails for good, meets a fault or is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from services.chassis.kernel.backoff import backoff
from services.chassis.kernel.errors import CauceError, GoneError, InvalidInputError, TimedOutError, UnavailableError
from services.chassis.models.failures import CallFailedError
from services.chassis.stopping import pause
from services.embeddings.application.lease import under_lease
from services.embeddings.domain.errors import ExtractionError, LeaseLostError


class Claim(Protocol):
    """Something under a lease: a file, or a batch of resources."""

    @property
    def attempts(self) -> int:
        """How many claims of this wish there were, this one included."""

    @property
    def is_gone(self) -> bool:
        """Whether the source of record has it no more: then it is removed, however often that was tried."""

    @property
    def is_large(self) -> bool:
        """Whether it may take so long that it must leave a place for others."""


RETRY_SECONDS = 1.0
BACKOFF_BASE_SECONDS = 2.0
BACKOFF_CAP_SECONDS = 300.0

C = TypeVar("C", bound=Claim)
C_contra = TypeVar("C_contra", bound=Claim, contravariant=True)


class LeasedWork(Protocol[C_contra]):
    """What can be done with a claim besides completing it."""

    async def renew(self, claim: C_contra) -> None:
        """Extend the lease. Raises LeaseLostError."""

    async def fail(self, claim: C_contra, code: str, message: str) -> None:
        """End it FAILED: it will not get better by itself. Raises LeaseLostError."""

    async def give_back(self, claim: C_contra, code: str, message: str, *, delay_seconds: float, counts: bool) -> None:
        """Return it to the queue after a passing fault, which stays visible; ``counts`` spends the attempt."""

    async def release(self, claim: C_contra) -> None:
        """Return it to the queue at once, as if it had not been claimed."""


@dataclass(frozen=True, slots=True)
class ProcessClaim(Generic[C]):
    """Runs the reconcile under its lease, which is renewed all along, and settles the claim in every case."""

    reconcile: Callable[[C], Awaitable[None]]
    work: LeasedWork[C]
    lease_seconds: float
    max_attempts: int
    on_fault: Callable[[C, BaseException], None]
    passing_fault: Callable[[Exception], UnavailableError | None] = lambda _: None
    """The same as an error of what all work needs, which is no fault of the claim; None for any other."""
    retry_seconds: float = RETRY_SECONDS

    async def __call__(self, claim: C) -> None:
        """Settle the claim, as soon as the database lets it. Attempts are for what the claim itself did.

        Only a fault that is none of those that pass, or a cancellation, comes out of here.
        """
        try:
            if not claim.is_gone and claim.attempts > self.max_attempts:
                await self._exhausted(claim, "a worker ended while it worked on this")
            else:
                await under_lease(lambda: self.reconcile(claim), lambda: self.work.renew(claim), self.lease_seconds)
        except asyncio.CancelledError:
            await asyncio.shield(self.work.release(claim))
            raise
        except LeaseLostError:
            await self.work.release(claim)
        except (ExtractionError, InvalidInputError, GoneError) as error:
            await self._fail(claim, error.code, error.message)
        except CallFailedError as error:
            self.on_fault(claim, error)
            await self._retry_or_fail(claim, error)
        except UnavailableError as error:
            self.on_fault(claim, error)
            await self._wait_out(claim, error)
        except Exception as error:  # noqa: BLE001 - whatever it was, the claim must not stay stuck
            self.on_fault(claim, error)
            match self.passing_fault(error):
                case None:
                    await self._retry_or_fail(claim, error)
                case TimedOutError() as passing if await self._is_answered(claim):
                    await self._retry_or_fail(claim, passing)
                case passing:
                    await self._wait_out(claim, passing)

    async def _is_answered(self, claim: C) -> bool:
        """Whether the database takes something small for the claim now, and so is not slow for everybody."""
        try:
            await self.work.renew(claim)
        except LeaseLostError:
            pass
        except Exception as error:
            if self.passing_fault(error) is None:
                raise
            return False
        return True

    async def _wait_out(self, claim: C, error: UnavailableError) -> None:
        await self._give_back(claim, error.code, error.message, _pause_after(claim.attempts, error), counts=False)

    async def _retry_or_fail(self, claim: C, error: Exception) -> None:
        message = error.message if isinstance(error, CauceError) else f"{type(error).__name__}: {error}"
        if claim.attempts >= self.max_attempts:
            await self._exhausted(claim, message)
        else:
            code = error.code if isinstance(error, CauceError) else "TRANSIENT_FAULT"
            await self._give_back(claim, code, message, _pause_after(claim.attempts, error), counts=True)

    async def _give_back(self, claim: C, code: str, message: str, delay: float, *, counts: bool) -> None:
        await self._settle(lambda: self.work.give_back(claim, code, message, delay_seconds=delay, counts=counts))

    async def _exhausted(self, claim: C, last: str) -> None:
        await self._fail(claim, "ATTEMPTS_EXHAUSTED", f"gave up after {self.max_attempts} attempts; the last: {last}")

    async def _fail(self, claim: C, code: str, message: str) -> None:
        """End it FAILED; where removing what it had takes the database too long, it is given back for now."""
        try:
            await self._settle(
                lambda: self.work.fail(claim, code, message), lambda timed_out: self._wait_out(claim, timed_out)
            )
        except LeaseLostError:
            await self.work.release(claim)

    async def _settle(
        self,
        write: Callable[[], Awaitable[None]],
        on_time_out: Callable[[TimedOutError], Awaitable[None]] | None = None,
    ) -> None:
        """Write it once the database is there again: a lease that runs out would spend an attempt."""
        while True:
            try:
                await write()
                return
            except Exception as error:
                match self.passing_fault(error):
                    case None:
                        raise
                    case TimedOutError() as timed_out if on_time_out:
                        await on_time_out(timed_out)
                        return
            await pause(self.retry_seconds)


def _pause_after(attempts: int, error: Exception) -> float:
    asked = error.retry_after if isinstance(error, UnavailableError) else None
    return asked or backoff(attempts, base_seconds=BACKOFF_BASE_SECONDS, cap_seconds=BACKOFF_CAP_SECONDS)
