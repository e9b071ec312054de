"""Text that knows where each of its lines stands, and still does when parts of it are left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from services.chassis.kernel.text import FORBIDDEN, is_plain, sanitise
from services.embeddings.domain.document import Page, Span

# What cannot be stored, and what no reader sees but a search for the word would stumble over.
_LEFT_OUT = re.compile(rf"\r(?=\n)|[\u00ad\u2060\ufeff]|{FORBIDDEN.pattern}")
_LINE_END = re.compile(r"[-\u00ad\u2010]\r?\n[ \t]*")
_PARTED_WORD = re.compile(r"(?<![\w-])[^\W\d_]{2,}[-\u00ad\u2010]\Z")
_ITS_REST = re.compile(r"[^\W\d_]++(?!-\S)")
_LONGEST_WORD = 80


class PlacedText(NamedTuple):
    """A text, and where its pieces stand: in order, none over another."""

    text: str
    spans: tuple[Span, ...] = ()

    @classmethod
    def joined(cls, parts: Iterable[PlacedText]) -> PlacedText:
        """The parts one after another."""
        parts = list(parts)
        if len(parts) == 1:
            return parts[0]
        offsets = accumulate((len(part.text) for part in parts), initial=0)
        spans = (
            span.moved(offset) if offset else span
            for part, offset in zip(parts, offsets, strict=False)
            for span in part.spans
        )
        return cls("".join(part.text for part in parts), tuple(spans))

    def without(self, ranges: Iterable[tuple[int, int]]) -> PlacedText:
        """The text without the characters of those ranges, which are in order; a span without characters goes."""
        cuts = [(start, end) for start, end in ranges if start < end]
        if not cuts:
            return self
        ends = [0, *(end for _, end in cuts)]
        starts = [*(start for start, _ in cuts), len(self.text)]
        text = "".join(self.text[start:end] for start, end in zip(ends, starts, strict=True))
        return PlacedText(text, tuple(_shifted(self.spans, cuts)))

    def with_whole_words(self) -> PlacedText:
        """The text with words joined that are parted at the ends of lines."""
        text = self.text
        return self.without(
            match.span()
            for match in _LINE_END.finditer(text)
            if is_word_parted(
                text[max(0, match.start() + 1 - _LONGEST_WORD) : match.start() + 1],
                text[match.end() : match.end() + _LONGEST_WORD],
            )
        )

    def stripped(self) -> PlacedText:
        """The text without the line ends around it."""
        start = len(self.text) - len(self.text.lstrip("\n"))
        end = max(start, len(self.text.rstrip("\n")))
        return self.without([(0, start), (end, len(self.text))])


def is_word_parted(before: str, after: str) -> bool:
    """Whether the hyphen at the end of a text parts a word that goes on in the next one, and is none of the word's own.

    It is the word's own after a single letter, and where there is another in it (``state-of-the-art``).
    """
    return (
        after[:1].islower()
        and _PARTED_WORD.search(before[-_LONGEST_WORD:]) is not None
        and _ITS_REST.match(after[:_LONGEST_WORD]) is not None
    )


def placed_text(page: Page) -> PlacedText:
    """The text of the page."""
    return PlacedText(page.text, page.layout.spans if page.layout else ())


def with_text(page: Page, placed: PlacedText) -> Page:
    """The page with another text."""
    layout = page.layout and replace(page.layout, spans=placed.spans)
    return replace(page, text=placed.text, layout=layout)


def sanitised(page: Page) -> Page:
    """The page with its text as it can be stored."""
    if is_plain(page.text):
        return page
    placed = placed_text(page).without(match.span() for match in _LEFT_OUT.finditer(page.text))
    return with_text(page, placed._replace(text=sanitise(placed.text)))


def _shifted(spans: Iterable[Span], cuts: list[tuple[int, int]]) -> Iterator[Span]:
    for start, end, rect in spans:
        new_start = start - sum(max(0, min(cut_end, start) - cut_start) for cut_start, cut_end in cuts)
        new_end = end - sum(max(0, min(cut_end, end) - cut_start) for cut_start, cut_end in cuts)
        if new_start < new_end:
            yield Span(new_start, new_end, rect)
