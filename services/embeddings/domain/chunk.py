"""Chunks: spans of a document's text with the exact pages they stand on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from services.embeddings.domain.document import Page, Span
from services.embeddings.domain.placed_text import is_word_parted

PAGE_SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a document.

    Attributes:
        position: 0-based order within the document.
        page_from: 1-based first page, None where the format has no pages.
        page_to: 1-based last page, inclusive.
        char_start: offset of the first character in the document's text.
        char_end: offset after the last character.
        text: the characters from ``char_start`` to ``char_end``.
    """

    position: int
    page_from: int | None
    page_to: int | None
    char_start: int
    char_end: int
    text: str

    @property
    def text_hash(self) -> bytes:
        """SHA-256 of the text: with the embedding space it identifies a vector."""
        return sha256(self.text.encode()).digest()


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The pages of a document as one text, with the page of every character, and the spans of every page.

    Pages are joined by a blank line, so that a splitter prefers to cut there and may still keep a sentence that
    runs over the border whole. A word that a hyphen parts at the border is joined, and stands on both.
    """

    text: str
    starts: tuple[int, ...]
    numbers: tuple[int | None, ...]
    spans: tuple[tuple[Span, ...], ...]

    @classmethod
    def join(cls, pages: Sequence[Page]) -> DocumentText:
        """Join the pages that have text."""
        starts: list[int] = []
        numbers: list[int | None] = []
        spans: list[tuple[Span, ...]] = []
        parts: list[str] = []
        offset = 0
        shown = [(page, text) for page in pages if (text := page.text.strip())]
        followers = [*(text for _, text in shown), ""][1:]
        for (page, text), follower in zip(shown, followers, strict=True):
            is_parted = is_word_parted(text, follower)
            part = text[:-1] if is_parted else text
            starts.append(offset)
            numbers.append(page.number)
            spans.append(tuple(_spans(page, part, offset)))
            parts += [part, "" if is_parted else PAGE_SEPARATOR]
            offset += len(part) + len(parts[-1])
        return cls("".join(parts[:-1]), tuple(starts), tuple(numbers), tuple(spans))

    def chunk(self, position: int, char_start: int, char_end: int) -> Chunk:
        """The chunk over the given offsets, with surrounding white space left out."""
        text = self.text[char_start:char_end]
        char_start += len(text) - len(text.lstrip())
        text = text.strip()
        char_end = char_start + len(text)
        first = bisect_right(self.starts, char_start) - 1
        last = bisect_right(self.starts, char_end - 1) - 1
        return Chunk(position, self.numbers[first], self.numbers[last], char_start, char_end, text)


def _spans(page: Page, text: str, offset: int) -> Iterator[Span]:
    """The spans of the page by the offsets of its stripped text in the document's."""
    left_out = len(page.text) - len(page.text.lstrip())
    for span in page.layout.spans if page.layout else ():
        start, end = max(0, span.start - left_out), min(len(text), span.end - left_out)
        if start < end:
            yield Span(offset + start, offset + end, span.rect)
