"""The lines that stand on every page of a document."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from services.embeddings.domain.placed_text import PlacedText

_MAX_APPEARANCES = 3
_EDGE_LINES = 2
_MARGIN = 0.15
_FEW_LINES = 8
_NUMBER = re.compile(r"\d{1,9}")
_PAGE_WORD = re.compile(r"(?:p|pp|p[áa]g|p[áa]gina|page|seite|folio|hoja|sheet|blatt)[.:]?|[^\w\s]|_", re.IGNORECASE)
_WORD_OF_A_COUNT = re.compile(r"de|of|von|\d{1,9}", re.IGNORECASE)
_MAX_PAGE_OFFSET = 500
_MAX_WORDS_OF_A_THING = 2


class RunningLines:
    """Knows the headers and footers of a document, which would fill every chunk.

    One is a line among the first two or the last two of a page, in its upper or lower margin, that stood there on three
    pages before. The number of the page in it may grow as the pages do; any other that does (of an invoice, of a
    lesson) is content. Where nobody knows where lines stand, a page of a few lines has none.
    """

    def __init__(self) -> None:
        self._appearances: Counter[tuple[bool, str]] = Counter()

    def left_out_of(self, page: PlacedText, index: int, height: int) -> PlacedText:
        """The text of the page of that index and height without those lines. Pages come in order."""
        lines = page.text.split("\n")
        starts = [0, *accumulate(len(line) + 1 for line in lines)]
        shown = [at for at, line in enumerate(lines) if line.strip()]
        dropped = set()
        for at in {*shown[:_EDGE_LINES], *shown[-_EDGE_LINES:]}:
            middle = _middle(page, starts[at], starts[at + 1])
            if middle is None and len(shown) < _FEW_LINES:
                continue
            if middle is not None and _MARGIN * height < middle < (1 - _MARGIN) * height:
                continue
            is_lower = at not in shown[:_EDGE_LINES] if middle is None else 2 * middle > height
            keys = {(is_lower, key) for key in _line_keys(lines[at], index)}
            if any(self._appearances[key] >= _MAX_APPEARANCES for key in keys):
                dropped.add(at)
            self._appearances.update(keys)
        if not dropped or dropped == set(shown):  # a page that says nothing else means what it says
            return page
        ranges = [(starts[at], min(starts[at + 1], len(page.text))) for at in sorted(dropped)]
        return page.without(ranges).stripped()


def _middle(page: PlacedText, start: int, end: int) -> float | None:
    """How far from the top of the page the characters stand, None where that is not known."""
    first = bisect_right(page.spans, start, key=lambda span: span.end)
    rects = (span.rect for span in page.spans[first : first + 1] if span.start < end)
    return next(((rect.y0 + rect.y1) / 2 for rect in rects), None)


def _line_keys(line: str, index: int) -> Iterator[str]:
    """The line, and the line with the number of the page in it told by its distance from the index."""
    words = line.split()
    yield " ".join(words)
    if not _NUMBER.search(line):
        return
    for at, word in enumerate(words):
        number = _NUMBER.search(word)
        if number and _counts_pages(int(number.group()), at, words, index):
            told = f"{word[: number.start()]}#{int(number.group()) - index}{word[number.end() :]}"
            yield " ".join([*words[:at], told, *words[at + 1 :]])


def _counts_pages(number: int, at: int, words: Sequence[str], index: int) -> bool:
    """Whether a number in a line may be the page's: near to it, and not that of an invoice or a lesson."""
    if abs(number - index) > _MAX_PAGE_OFFSET:
        return False
    beside = [*words[max(0, at - 1) : at], *words[at + 1 : at + 2]]
    others = [*words[:at], *words[at + 1 :]]
    if any(_PAGE_WORD.fullmatch(word) for word in beside):
        return True
    if all(_PAGE_WORD.fullmatch(word) or _WORD_OF_A_COUNT.fullmatch(word) for word in others):
        return True
    return len(others) > _MAX_WORDS_OF_A_THING and at in (0, len(words) - 1)
