"""What the adapters of language models share: schemas for the server, checks of its answer, a bound on its size."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx2
from pydantic import TypeAdapter, ValidationError

from services.chassis.models.language import Answer, LanguageModelError, Usage

THINKING_TOKENS = 2_048
"""Some models count what they think before they answer as a part of the answer."""

SHORT_ANSWER_BYTES = 1_000_000
"""More than a language model writes."""

MOST_TOKENS = 1_000_000_000
"""More than any call takes: a higher count is not one."""

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


def bounded(most_bytes: int) -> Callable[[httpx2.Response], Awaitable[None]]:
    """A hook on responses: the body may have so many bytes and no more, and none of that in disguise.

    A text is read as UTF-8: what a server calls its charset may be the name of any decoder. It raises
    httpx2.DecodingError, when the body is read or at once.
    """

    async def bound_answer(response: httpx2.Response) -> None:
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise httpx2.DecodingError("the answer is compressed, which was not asked for")
        response.encoding = "utf-8"
        response.stream = _BoundedStream(response.stream, most_bytes)

    return bound_answer


UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Headers that go with ``bounded``."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that ``Retry-After`` asks for; None without one, or for a date in an answer that is not dated itself.

    A date counts from that of the answer, so that no clock of ours matters.
    """
    asked = headers.get("Retry-After")
    if asked is None:
        return None
    seconds = finite_seconds(asked)
    if seconds is not None:
        return seconds
    until, sent = _moment(asked), _moment(headers.get("Date"))
    return None if until is None or sent is None else max(0.0, (until - sent).total_seconds())


def finite_seconds(text: str) -> float | None:
    """A number of seconds, None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _moment(text: str | None) -> datetime | None:
    """The moment of an HTTP date, in UTC where it names no zone; None for anything else."""
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, LookupError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, most_bytes: int) -> None:
        self._stream = stream
        self._most_bytes = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for block in self._stream:
            size += len(block)
            if size > self._most_bytes:
                raise httpx2.DecodingError(f"the answer has more than {self._most_bytes} bytes")
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
