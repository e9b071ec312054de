"""What may be embedded, and how texts are put into calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


def require_embeddable(texts: Sequence[str]) -> None:
    """Refuse what no model can embed; the caller sanitises and splits before.

    Raises:
        ValueError: for a blank text, one with a NUL (it would end a C string) or with a lone surrogate.
    """
    for position, text in enumerate(texts):
        if not text.strip():
            raise ValueError(f"text {position} is blank")
        if "\x00" in text:
            raise ValueError(f"text {position} contains a NUL")
        text.encode()


@dataclass(frozen=True, slots=True)
class TextSize:
    """What a text counts for in a call."""

    tokens: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What one call may carry."""

    items: int
    tokens: int
    bytes: int


def batches(sizes: Sequence[TextSize], limits: CallLimits) -> Iterator[slice]:
    """Cut texts of these sizes, in order, into the fewest calls that no limit is exceeded in.

    A text that exceeds a limit by itself gets a call of its own.
    """
    start = tokens = bytes_ = 0
    for position, size in enumerate(sizes):
        tokens += size.tokens
        bytes_ += size.bytes
        if position > start and (position - start >= limits.items or tokens > limits.tokens or bytes_ > limits.bytes):
            yield slice(start, position)
            start, tokens, bytes_ = position, size.tokens, size.bytes
    if start < len(sizes):
        yield slice(start, len(sizes))
