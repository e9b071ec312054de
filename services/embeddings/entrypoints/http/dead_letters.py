"""What an operator may ask about records that were set aside."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from services.chassis.http.app import CallerScope
from services.chassis.kernel.errors import InvalidInputError
from services.embeddings.application.dead_letter_ports import DeadLetters
from services.embeddings.application.read_dead_letters import MOST, ReadDeadLetters
from services.embeddings.application.replay_dead_letter import ReplayDeadLetter
from services.embeddings.domain.dead_letter import DeadLetter, Origin, Place, ReplayOutcome

router = APIRouter(prefix="/dead-letters", tags=["operations"])

Partition = Annotated[int, Path(ge=0, lt=10**9)]
Offset = Annotated[int, Path(ge=0, lt=10**18)]


@dataclass(frozen=True, slots=True)
class DeadLetterSurface:
    """The use cases that the routes call, as ``app.state.dead_letters``."""

    read: ReadDeadLetters
    replay: ReplayDeadLetter

    @classmethod
    def over(cls, dead_letters: DeadLetters, *, to_operators: bool) -> DeadLetterSurface:
        """Both use cases over one port."""
        read = ReadDeadLetters(dead_letters, to_operators)
        return cls(read, ReplayDeadLetter(dead_letters, read))


class Data(BaseModel):
    """Bytes, as text where they are UTF-8, else in Base64."""

    encoding: Literal["text", "base64"]
    data: str

    @classmethod
    def of(cls, raw: bytes | None) -> Data | None:
        """None where there are no bytes."""
        if raw is None:
            return None
        try:
            return cls(encoding="text", data=raw.decode())
        except UnicodeDecodeError:
            return cls(encoding="base64", data=base64.b64encode(raw).decode())


class RecordPlace(BaseModel):
    """A place in a topic."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, origin: Origin) -> RecordPlace:
        """The same on the wire."""
        return cls(topic=origin.topic, partition=origin.place.partition, offset=origin.place.offset)


class DeadLetterSummary(BaseModel):
    """A record that was set aside, without what it holds."""

    partition: int
    offset: int
    reason: str | None = Field(description="A stable code; null when the record does not say")
    detail: str | None
    set_aside_at: datetime
    origin: RecordPlace | None = Field(description="Where it came from")
    key: Data | None
    size_bytes: int = Field(description="Of the value")

    @classmethod
    def of(cls, letter: DeadLetter) -> DeadLetterSummary:
        """The same on the wire."""
        return cls(**_summary(letter))


class HeaderField(BaseModel):
    """A header that the record came with."""

    name: str
    value: Data | None


class DeadLetterDetail(DeadLetterSummary):
    """A record that was set aside, with all that it came with."""

    headers: list[HeaderField]
    value: Data | None

    @classmethod
    def of(cls, letter: DeadLetter) -> DeadLetterDetail:
        """The same on the wire."""
        headers = [HeaderField(name=name, value=Data.of(value)) for name, value in letter.headers]
        return cls(**_summary(letter), headers=headers, value=Data.of(letter.value))


class DeadLetterList(BaseModel):
    """A page; ``next`` is the ``after`` of the one that follows, null at the end."""

    dead_letters: list[DeadLetterSummary]
    next: str | None


class ReplayAnswer(BaseModel):
    """Where a record was sent again, and what became of it."""

    sent_to: RecordPlace
    outcome: ReplayOutcome = Field(description="WAITING: not yet consumed; SET_ASIDE: it is a dead letter again")
    dead_letter: DeadLetterSummary | None = Field(description="The new one of a record that was SET_ASIDE")


@router.get("")
async def list_dead_letters(
    request: Request,
    scope: CallerScope,
    limit: Annotated[int, Query(ge=1, le=MOST)] = 100,
    after: Annotated[str | None, Query(description="`next` of the page before: partition/offset")] = None,
) -> DeadLetterList:
    """Records that were set aside, in order of partition and offset."""
    page = await _surface(request).read.page(scope, limit, _place(after) if after is not None else None)
    summaries = [DeadLetterSummary.of(letter) for letter in page.letters]
    return DeadLetterList(dead_letters=summaries, next=None if page.next is None else str(page.next))


@router.get("/{partition}/{offset}")
async def show_dead_letter(
    request: Request, scope: CallerScope, partition: Partition, offset: Offset
) -> DeadLetterDetail:
    """One of them, with its headers, key and value."""
    return DeadLetterDetail.of(await _surface(request).read.get(scope, Place(partition, offset)))


@router.post("/{partition}/{offset}/replay")
async def replay_dead_letter(
    request: Request, scope: CallerScope, partition: Partition, offset: Offset
) -> ReplayAnswer:
    """Publish the record where it came from, as it came, and say what became of it. It stays a dead letter."""
    replay = await _surface(request).replay(scope, Place(partition, offset))
    return ReplayAnswer(
        sent_to=RecordPlace.of(replay.sent_to),
        outcome=replay.outcome,
        dead_letter=None if replay.again is None else DeadLetterSummary.of(replay.again),
    )


def _surface(request: Request) -> DeadLetterSurface:
    surface: DeadLetterSurface = request.app.state.dead_letters
    return surface


def _place(text: str) -> Place:
    try:
        return Place.parse(text)
    except ValueError as error:
        raise InvalidInputError(
            "INVALID_REQUEST", str(error), where="query.after", remedy="pass `next` of the page before"
        ) from error


def _summary(letter: DeadLetter) -> dict[str, object]:
    return {
        "partition": letter.place.partition,
        "offset": letter.place.offset,
        "reason": letter.reason,
        "detail": letter.detail,
        "set_aside_at": letter.set_aside_at,
        "origin": None if letter.origin is None else RecordPlace.of(letter.origin),
        "key": Data.of(letter.key),
        "size_bytes": len(letter.value or b""),
    }
