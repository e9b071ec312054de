"""What the adapters of language models share: schemas for the server, checks of its answer, a bound on its size."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx2
from pydantic import TypeAdapter, ValidationError

from services.chassis.models.language import Answer, LanguageModelError, Usage

THINKING_TOKENS = 2_048
"""Some models count what they think before they answer as a part of the answer."""

_MOST_BYTES = 1_000_000

T = TypeVar("T")


def schema_of(shape: type[Any]) -> dict[str, Any]:
    """The JSON schema of a dataclass, with no room for other properties."""
    schema: dict[str, Any] = _closed(TypeAdapter(shape).json_schema())
    return schema


def read_answer(text: str | None, shape: type[T], usage: Usage) -> Answer[T]:
    """The value that a whole answer holds. Raises LanguageModelError ``LANGUAGE_MODEL_ANSWER_INVALID``."""
    if text is None or not text.strip():
        raise invalid_answer("an empty answer", usage)
    try:
        value: T = TypeAdapter(shape).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise invalid_answer(f"{first['msg']}{' at ' if where else ''}{where}", usage) from error
    return Answer(value, usage)


def invalid_answer(reason: str, usage: Usage) -> LanguageModelError:
    """The error for an answer of no use."""
    return LanguageModelError(
        "LANGUAGE_MODEL_ANSWER_INVALID", f"the model's answer is of no use: {reason}", usage=usage
    )


async def bound_answer(response: httpx2.Response) -> None:
    """A hook on responses: the body may have a megabyte and no more, and none of that in disguise.

    Raises httpx2.DecodingError, when the body is read or at once.
    """
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise httpx2.DecodingError("the answer is compressed, which was not asked for")
    response.stream = _BoundedStream(response.stream)


UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Headers that go with ``bound_answer``."""


LONGEST_WAIT_SECONDS = 3_600.0
"""A provider that asks for more is asked again after this: no header stops the work for good."""


def retry_after(value: str | None) -> float | None:
    """The seconds that a header ``Retry-After`` asks for, as a number or as a date; None without one."""
    if value is None:
        return None
    seconds = asked_seconds(value)
    if seconds is None:
        try:
            there = parsedate_to_datetime(value).astimezone(UTC)
        except ValueError:
            return None
        seconds = asked_seconds(max(0.0, (there - datetime.now(UTC)).total_seconds()))
    return seconds


def asked_seconds(text: str | float) -> float | None:
    """A number of seconds, at most ``LONGEST_WAIT_SECONDS``; None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return min(value, LONGEST_WAIT_SECONDS) if math.isfinite(value) and value >= 0 else None


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for block in self._stream:
            size += len(block)
            if size > _MOST_BYTES:
                raise httpx2.DecodingError(f"the answer has more than {_MOST_BYTES} bytes")
            yield block

    async def aclose(self) -> None:
        await self._stream.aclose()


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(part) for name, part in schema.items()}
    return {**closed, "additionalProperties": False} if closed.get("type") == "object" else closed
