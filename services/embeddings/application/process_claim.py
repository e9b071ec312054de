"""What becomes of a claimed file when its reconcile ends well, fails for good, meets a fault or is cancelled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.chassis.kernel.errors import CauceError, UnavailableError
from services.embeddings.application.ports import FileWork
from services.embeddings.domain.errors import ExtractionError, LeaseLostError
from services.embeddings.domain.file_work import ClaimedFile

BACKOFF_BASE_SECONDS = 2.0
BACKOFF_CAP_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class ProcessClaim:
    """Runs the reconcile under its lease, which is renewed all along, and settles the claim in every case."""

    embed_file: Callable[[ClaimedFile], Awaitable[None]]
    work: FileWork
    lease_seconds: float
    max_attempts: int
    on_fault: Callable[[ClaimedFile, BaseException], None]

    async def __call__(self, claim: ClaimedFile) -> None:
        """Settle the claim. Only a fault of the database, or a cancellation, comes out of here."""
        try:
            if claim.context is not None and claim.attempts > self.max_attempts:
                await self._exhausted(claim, "a worker ended while it worked on this file")
            else:
                await self._under_lease(claim)
        except asyncio.CancelledError:
            await asyncio.shield(self.work.release(claim))
            raise
        except LeaseLostError:
            await self.work.release(claim)
        except ExtractionError as error:
            await self._fail(claim, error.code, error.message)
        except UnavailableError as error:
            self.on_fault(claim, error)
            delay = error.retry_after or _backoff(claim.attempts)
            await self.work.give_back(claim, error.code, error.message, delay_seconds=delay, counts=False)
        except Exception as error:  # noqa: BLE001 - whatever it was, the file must not stay stuck
            self.on_fault(claim, error)
            await self._retry_or_fail(claim, error)

    async def _under_lease(self, claim: ClaimedFile) -> None:
        """Reconcile while a second task renews the lease; losing the lease ends the reconcile."""
        reconcile = asyncio.ensure_future(self.embed_file(claim))
        renewal = asyncio.ensure_future(self._renew(claim))
        try:
            await asyncio.wait([reconcile, renewal], return_when=asyncio.FIRST_COMPLETED)
            if not reconcile.done():
                renewal.result()
            await reconcile
        finally:
            for task in (reconcile, renewal):
                task.cancel()
            await asyncio.gather(reconcile, renewal, return_exceptions=True)

    async def _renew(self, claim: ClaimedFile) -> None:
        while True:
            await asyncio.sleep(self.lease_seconds / 3)
            await self.work.renew(claim)

    async def _retry_or_fail(self, claim: ClaimedFile, error: Exception) -> None:
        message = error.message if isinstance(error, CauceError) else f"{type(error).__name__}: {error}"
        if claim.attempts >= self.max_attempts:
            await self._exhausted(claim, message)
        else:
            code = error.code if isinstance(error, CauceError) else "TRANSIENT_FAULT"
            delay = _backoff(claim.attempts)
            await self.work.give_back(claim, code, message, delay_seconds=delay, counts=True)

    async def _exhausted(self, claim: ClaimedFile, last: str) -> None:
        await self._fail(claim, "ATTEMPTS_EXHAUSTED", f"gave up after {self.max_attempts} attempts; the last: {last}")

    async def _fail(self, claim: ClaimedFile, code: str, message: str) -> None:
        try:
            await self.work.fail(claim, code, message)
        except LeaseLostError:
            await self.work.release(claim)


def _backoff(attempts: int) -> float:
    """Exponential with full jitter, in seconds, so that files that failed together do not come back together."""
    delay: float = min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2 ** (attempts - 1))
    return random.uniform(0.5, 1.0) * delay  # noqa: S311 - jitter needs no secrecy
