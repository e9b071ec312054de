"""Bodies as they arrive, and places for those that take long, which who sends slowly does not keep from others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastapi import Request
from starlette.requests import ClientDisconnect

from services.chassis.http.slots import Slots
from services.chassis.kernel.errors import IncompleteInputError


@dataclass(frozen=True, slots=True)
class Pace:
    """How a body has to come.

    Attributes:
        idle_seconds: it ends when no byte comes so long.
        grace_seconds: how far it may be behind, by the time that it was waited for, before it is slow.
        least_rate: bytes a second below which it falls behind.
    """

    idle_seconds: float
    grace_seconds: float
    least_rate: int


def body_chunks(request: Request, pace: Pace) -> AsyncIterator[bytes]:
    """The request's body as it arrives.

    Raises:
        IncompleteInputError: ``UPLOAD_INCOMPLETE`` when the caller hangs up, or sends nothing for too long.
    """
    return _Body(request, pace).chunks()


class BodySlots:
    """Places for so many bodies at once. When none is free, the slowest sender that is slow loses his to the next."""

    def __init__(self, what: str, limit: int, pace: Pace) -> None:
        self._slots = Slots(what, limit)
        self._pace = pace
        self._bodies: set[_Body] = set()

    @contextmanager
    def take(self, request: Request) -> Iterator[AsyncIterator[bytes]]:
        """Hold a place for the body, and read it as ``body_chunks`` does.

        Raises:
            UnavailableError: ``TOO_MANY_REQUESTS`` when all places are taken, and nobody is slow.
            IncompleteInputError: ``UPLOAD_TOO_SLOW`` while the body is read, when another has got the place.
        """
        with self._slots.take(self._make_room):
            body = _Body(request, self._pace)
            self._bodies.add(body)
            try:
                yield body.chunks()
            finally:
                self._bodies.remove(body)

    def _make_room(self) -> bool:
        slow = [body for body in self._bodies if body.patience <= 0 and not body.is_given_up]
        if slow:
            min(slow, key=lambda body: body.patience).give_up()
        return bool(slow)


class _Body:
    """One body. ``patience`` is how many seconds its sender has left before he is slow; our own time costs him none."""

    def __init__(self, request: Request, pace: Pace) -> None:
        self._request = request
        self._pace = pace
        self._patience = pace.grace_seconds
        self._waiting: asyncio.Timeout | None = None
        self._waits_since = 0.0
        self.is_given_up = False

    @property
    def patience(self) -> float:
        return self._patience if self._waiting is None else self._patience - (time.monotonic() - self._waits_since)

    def give_up(self) -> None:
        """End it, at once or as soon as it has to be waited for."""
        self.is_given_up = True
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def chunks(self) -> AsyncIterator[bytes]:
        stream = self._request.stream()
        while True:
            self._waits_since = time.monotonic()
            try:
                async with asyncio.timeout(0 if self.is_given_up else self._pace.idle_seconds) as self._waiting:
                    chunk = await anext(stream, None)
            except TimeoutError as error:
                raise self._too_late() from error
            except ClientDisconnect as error:
                raise incomplete("the caller hung up before the body was whole") from error
            finally:
                patience, self._waiting = self.patience, None
            if chunk is None:
                return
            self._patience = min(self._pace.grace_seconds, patience + len(chunk) / self._pace.least_rate)
            if chunk:
                yield chunk

    def _too_late(self) -> IncompleteInputError:
        if not self.is_given_up:
            return incomplete(f"no byte came for {self._pace.idle_seconds:g} seconds")
        return IncompleteInputError(
            "UPLOAD_TOO_SLOW",
            f"others wait for the place, and the body comes with less than {self._pace.least_rate} bytes a second",
            where="body",
            remedy="send it again over a faster line, or when there is less to do here",
        )


def incomplete(message: str) -> IncompleteInputError:
    """The error of a body that did not come whole."""
    return IncompleteInputError("UPLOAD_INCOMPLETE", message, where="body", remedy="send the file again")
