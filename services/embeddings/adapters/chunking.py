"""Cuts a document's text into chunks at the coarsest boundary that fits, each with some of what went before.

Boundaries from coarse to fine: blank lines, line ends, sentences, words, graphemes (Unicode UAX #29).
"""

from __future__ import annotations

from collections.abc import Iterator

import regex
from semantic_text_splitter import TextSplitter

from services.chassis.kernel.errors import ConfigurationError
from services.embeddings.domain.chunk import Chunk, DocumentText

_GRAPHEME = regex.compile(r"\X")
_WORD = regex.compile(r"(?<=\s)[^\s\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]")
# The splitter's time grows with the square of its input where there are no line ends (80,000 Chinese characters
# take 2.6 s), so it never sees more than this many bodies at once.
_WINDOW_BODIES = 4


class StructuralChunker:
    """Chunks of at most ``limit`` characters that begin with up to ``overlap`` characters of the text before them.

    A chunk is an overlap and a body. The bodies follow one another and together hold every character that is not
    white space; each is at most ``limit - overlap`` characters. The overlap starts at a word where that keeps at
    least half of it, else at a grapheme; it reaches no further back than the body before. So a heading is always
    in one chunk with the start of what it heads. A grapheme longer than a body is cut hard; no other is.
    """

    def __init__(self, limit: int = 1000, overlap: int = 150) -> None:
        if not 0 <= overlap < limit:
            raise ConfigurationError(
                "INVALID_CHUNKING",
                f"an overlap of {overlap} does not fit in chunks of {limit} characters",
                remedy="set an overlap from 0 to less than the limit",
            )
        self._overlap = overlap
        self._body = limit - overlap
        self._splitter = TextSplitter(self._body)

    def chunk(self, document: DocumentText, *, by_line: bool = False) -> list[Chunk]:
        """The chunks of the document in order; the same text gives the same chunks.

        With ``by_line`` a line is a document of its own in this: what is listed line by line stays apart.
        """
        text = document.text
        chunks: list[Chunk] = []
        for first, last in _lines(text) if by_line else [(0, len(text))]:
            previous = (first, first)
            for start, end in self._bodies(text, first, last):
                chunks.append(document.chunk(len(chunks), self._overlap_start(text, previous, start), end))
                previous = (start, end)
        return chunks

    def _bodies(self, text: str, position: int, stop: int) -> Iterator[tuple[int, int]]:
        while position < stop:
            end = min(stop, position + _WINDOW_BODIES * self._body)
            spans = [(position + at, len(body)) for at, body in self._splitter.chunk_indices(text[position:end])]
            if end < stop and spans and spans[-1][0] > position:
                # The last body may go on after the window: the next window begins with it.
                end = spans.pop()[0]
            yield from ((start, start + length) for start, length in spans)
            position = end

    def _overlap_start(self, text: str, previous: tuple[int, int], start: int) -> int:
        previous_start, previous_end = previous
        earliest = start - self._overlap
        if earliest <= previous_start:
            return previous_start
        if earliest >= previous_end:
            return start
        word = _WORD.search(text, earliest, start - self._overlap // 2)
        if word is not None:
            return int(word.start())
        graphemes = (int(match.start()) for match in _GRAPHEME.finditer(text, previous_start, start))
        return next((at for at in graphemes if at >= earliest), start)


def _lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for line in text.splitlines(keepends=True):
        yield start, start + len(line)
        start += len(line)
