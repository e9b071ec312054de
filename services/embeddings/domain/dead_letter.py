"""Records that the intake could not read or handle, kept as they came, and what becomes of one that is sent again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

Header: TypeAlias = tuple[str, bytes | None]


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """A place in a topic, written ``partition/offset``."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read a place. Raises ValueError."""
        partition, slash, offset = text.partition("/")
        if not (slash and partition.isdecimal() and offset.isdecimal() and len(partition) < 10 and len(offset) < 20):
            raise ValueError(f"{text!r} is not partition/offset")
        return cls(int(partition), int(offset))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record came from."""

    topic: str
    place: Place


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that was set aside.

    Attributes:
        place: where it is now, in the topic of dead letters.
        reason: a stable code, None when the record does not say.
        detail: what was wrong.
        set_aside_at: when.
        origin: where it came from, None when the record does not say: then it cannot be sent again.
        headers: those that it came with.
        key, value: as they came.
        is_whole: False where the value and the headers are not kept: too large, or not to be decoded.
    """

    place: Place
    reason: str | None
    detail: str | None
    set_aside_at: datetime
    origin: Origin | None
    headers: Sequence[Header]
    key: bytes | None
    value: bytes | None
    is_whole: bool

    @property
    def tenant_id(self) -> str | None:
        """The tenant that the value names, None when it names none that can be read."""
        try:
            payload = json.loads(self.value or b"")
        except (ValueError, RecursionError):
            return None
        tenant = payload.get("tenant") if isinstance(payload, dict) else None
        return tenant if isinstance(tenant, str) else None


class ReplayOutcome(StrEnum):
    """What became of a record that was sent again, as far as it is known after a short wait."""

    HANDLED = "HANDLED"
    SET_ASIDE = "SET_ASIDE"
    WAITING = "WAITING"


@dataclass(frozen=True, slots=True)
class Replay:
    """Where a record went, and what became of it; ``again`` is the new dead letter of one that was SET_ASIDE."""

    sent_to: Origin
    outcome: ReplayOutcome
    again: DeadLetter | None = None
