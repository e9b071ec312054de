"""Spans as a column holds them: six integers each, one after another."""

from __future__ import annotations

from collections.abc import Sequence

from services.embeddings.domain.document import Rect, Span


def packed(spans: Sequence[Span]) -> list[int]:
    """Start, end, left, top, right, bottom of each."""
    return [number for start, end, rect in spans for number in (start, end, *rect)]


def unpacked(numbers: Sequence[int]) -> tuple[Span, ...]:
    """The spans again."""
    return tuple(
        Span(numbers[at], numbers[at + 1], Rect(*numbers[at + 2 : at + 6])) for at in range(0, len(numbers), 6)
    )
