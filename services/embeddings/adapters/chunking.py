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
_SOLID = regex.compile(r"\S")
# One that could be a heading: marked as such, or without the end of a sentence, of an image's description or of a cell.
_LINE = regex.compile(r"(?m)^(?:(?P<mark>#{1,6} ).*|(?P<open>.*[^\s.!?;,…\]|\t])|.*\S.*)\s*?$")
_WORD = regex.compile(r"(?<=\s)[^\s\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]")
# The splitter's time grows with the square of its input where there are no line ends (80,000 Chinese characters
# take 2.6 s), so it never sees more than this many bodies at once.
_WINDOW_BODIES = 4


class StructuralChunker:
    """Chunks of at most ``limit`` characters that begin with up to ``overlap`` characters of the text before them.

    A chunk is an overlap and a body. The bodies follow one another and together hold every character that is not
    white space; each is at most ``limit - overlap`` characters, but for a row of a table, which is one body up to
    ``limit``. The overlap starts at a word where that keeps at least half of it, else at a grapheme; it reaches no
    further back than the body before. Headings that it would not reach begin the body of what they head, if they take
    no more than half of one. A grapheme longer than half a body may be cut hard; no other is.
    """

    def __init__(self, limit: int = 1000, overlap: int = 150) -> None:
        if not 0 <= overlap < limit:
            raise ConfigurationError(
                "INVALID_CHUNKING",
                f"an overlap of {overlap} does not fit in chunks of {limit} characters",
                remedy="set an overlap from 0 to less than the limit",
            )
        self._limit = limit
        self._overlap = overlap
        self._body = limit - overlap
        self._splitter = TextSplitter(self._body)
        self._long_row = regex.compile(rf"(?m)^(?=[^\n]*(?: \| |\t))[^\n]{{{self._body},{limit}}}$")

    def chunk(self, document: DocumentText, *, by_line: bool = False) -> list[Chunk]:
        """The chunks of the document in order; the same text gives the same chunks.

        With ``by_line`` a line is a document of its own in this: what is listed line by line stays apart.
        """
        text = document.text
        chunks: list[Chunk] = []
        for first, last in _lines(text) if by_line else [(0, len(text))]:
            previous = (first, first)
            for start, end in self._bodies(text, first, last):
                chunks.append(document.chunk(len(chunks), self._overlap_start(text, previous, start, end), end))
                previous = (start, end)
        return chunks

    def _bodies(self, text: str, position: int, last: int) -> Iterator[tuple[int, int]]:
        for row in [*(match.span() for match in self._long_row.finditer(text, position, last)), (last, last)]:
            while position < row[0]:
                end = min(row[0], position + _WINDOW_BODIES * self._body)
                spans = [(position + at, len(body)) for at, body in self._splitter.chunk_indices(text[position:end])]
                if end < row[0] and spans and spans[-1][0] > position:
                    # The last body may go on after the window: the next window begins with it.
                    end = spans.pop()[0]
                for start, length in spans:
                    headed = self._headed(text, (start, start + length), row[0])
                    if headed is None:
                        yield start, start + length
                        continue
                    if start < headed[0]:
                        yield start, headed[0]
                    yield headed
                    end = headed[1]
                    break
                position = end
            if position == row[0] < row[1]:
                yield row
            position = row[1]

    def _headed(self, text: str, body: tuple[int, int], stop: int) -> tuple[int, int] | None:
        """The body that headings at the end of this one begin; None where the next overlap repeats them, and for none.

        Before a long row, which begins at ``stop``, it repeats what fits.
        """
        following = _SOLID.search(text, body[1], stop)
        if following is None:
            return None
        next_start = following.start()
        start = _headings_start(text, body[0], next_start, next_start - self._body // 2)
        if start == next_start or self._overlap_start(text, body, next_start, next_start + self._body) <= start:
            return None
        splitter = TextSplitter(self._body - (next_start - start))
        at, piece = splitter.chunk_indices(text[next_start : min(stop, next_start + 2 * self._body)])[0]
        return start, next_start + at + len(piece)

    def _overlap_start(self, text: str, previous: tuple[int, int], start: int, end: int) -> int:
        previous_start, previous_end = previous
        room = min(self._overlap, self._limit - (end - start))
        earliest = start - room
        if earliest <= previous_start:
            return previous_start
        if earliest >= previous_end:
            return start
        word = _WORD.search(text, earliest, start - room // 2)
        if word is not None:
            return int(word.start())
        graphemes = (int(match.start()) for match in _GRAPHEME.finditer(text, previous_start, start))
        return next((at for at in graphemes if at >= earliest), start)


def _headings_start(text: str, start: int, end: int, earliest: int) -> int:
    """Where the headings begin that end the text from ``start`` to ``end``, not before ``earliest``; ``end`` for none.

    A heading is a line that Markdown marks as one, or a line between blank ones that does not end as a sentence does.
    """
    headings = end
    for line in reversed([*_LINE.finditer(text, start, end)]):
        is_parted = (
            text[max(0, line.start() - 2) : line.start()] in ("", "\n\n") and "\n\n" in text[line.end() : headings]
        )
        if line.start() < earliest or not (line["mark"] or (is_parted and line["open"])):
            break
        headings = line.start()
    return headings


def _lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for line in text.splitlines(keepends=True):
        yield start, start + len(line)
        start += len(line)
