"""Bodies as they come and go, and places for those that take long, which the slow do not keep from others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Message, Scope, Send

from services.chassis.http.connection import ABORT
from services.chassis.http.slots import Slots
from services.chassis.kernel.errors import IncompleteInputError


@dataclass(frozen=True, slots=True)
class Pace:
    """How a body has to come, and to be taken.

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


class _Paced(Protocol):
    """What holds a place. ``patience`` is how many seconds its caller has left before he is slow."""

    is_given_up: bool

    @property
    def patience(self) -> float: ...

    def give_up(self) -> None:
        """End it soon."""


class _PacedSlots:
    """Places for so many at once. When none is free, the slowest caller that is slow loses his to the next."""

    def __init__(self, what: str, limit: int, pace: Pace) -> None:
        self._slots = Slots(what, limit)
        self._pace = pace
        self._held: set[_Paced] = set()

    @contextmanager
    def _hold(self, one: _Paced) -> Iterator[None]:
        with self._slots.take(self._make_room):
            self._held.add(one)
            try:
                yield
            finally:
                self._held.remove(one)

    def _make_room(self) -> bool:
        slow = [one for one in self._held if one.patience <= 0 and not one.is_given_up]
        if slow:
            min(slow, key=lambda one: one.patience).give_up()
        return bool(slow)


class BodySlots(_PacedSlots):
    """Places for bodies that arrive."""

    @contextmanager
    def take(self, request: Request) -> Iterator[AsyncIterator[bytes]]:
        """Hold a place for the body, and read it as ``body_chunks`` does.

        Raises:
            UnavailableError: ``TOO_MANY_REQUESTS`` when all places are taken, and nobody is slow.
            IncompleteInputError: ``UPLOAD_TOO_SLOW`` while the body is read, when another has got the place.
        """
        body = _Body(request, self._pace)
        with self._hold(body):
            yield body.chunks()


class AnswerSlots(_PacedSlots):
    """Places for answers that are taken."""

    @contextmanager
    def take(self, scope: Scope, send: Send) -> Iterator[Send]:
        """Hold a place for the answer, and send it. Its connection ends when another has got the place.

        Raises:
            UnavailableError: ``TOO_MANY_REQUESTS`` when all places are taken, and nobody is slow.
        """
        answer = _Answer(send, scope["state"][ABORT], self._pace)
        with self._hold(answer):
            yield answer.send


class _Credit:
    """The seconds that a caller has left: they pass while he is waited for, and bytes give them back.

    Our own time costs him none.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._seconds = pace.grace_seconds
        self._waits_since: float | None = None
        self.is_given_up = False

    @property
    def patience(self) -> float:
        return self._seconds - (0.0 if self._waits_since is None else time.monotonic() - self._waits_since)

    @contextmanager
    def _waited_for(self) -> Iterator[None]:
        self._waits_since = time.monotonic()
        try:
            yield
        finally:
            self._seconds, self._waits_since = self.patience, None

    def _earn(self, size: int) -> None:
        self._seconds = min(self._pace.grace_seconds, self._seconds + size / self._pace.least_rate)


class _Answer(_Credit):
    """One answer."""

    def __init__(self, send: Send, abort: Callable[[], None], pace: Pace) -> None:
        super().__init__(pace)
        self._send = send
        self._abort = abort

    def give_up(self) -> None:
        self.is_given_up = True
        self._abort()

    async def send(self, message: Message) -> None:
        with self._waited_for():
            await self._send(message)
        self._earn(len(message.get("body", b"")))


class _Body(_Credit):
    """One body."""

    def __init__(self, request: Request, pace: Pace) -> None:
        super().__init__(pace)
        self._request = request
        self._waiting: asyncio.Timeout | None = None

    def give_up(self) -> None:
        """End it, at once or as soon as it has to be waited for."""
        self.is_given_up = True
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def chunks(self) -> AsyncIterator[bytes]:
        stream = self._request.stream()
        while True:
            try:
                with self._waited_for():
                    async with asyncio.timeout(0 if self.is_given_up else self._pace.idle_seconds) as self._waiting:
                        chunk = await anext(stream, None)
            except TimeoutError as error:
                raise self._too_late() from error
            except ClientDisconnect as error:
                raise incomplete("the caller hung up before the body was whole") from error
            finally:
                self._waiting = None
            if chunk is None:
                return
            self._earn(len(chunk))
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
