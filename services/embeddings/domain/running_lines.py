"""The lines that stand on every page of a document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from services.embeddings.domain.placed_text import PlacedText

_MAX_APPEARANCES = 3
_EDGE_LINES = 2
_NUMBER = re.compile(r"\d{1,9}")
_PAGE_WORD = re.compile(r"(?:p|pp|p[áa]g|p[áa]gina|page|seite|folio|hoja|sheet|blatt)[.:]?|[^\w\s]|_", re.IGNORECASE)
_WORD_OF_A_COUNT = re.compile(r"de|of|von|\d{1,9}", re.IGNORECASE)
_MAX_PAGE_OFFSET = 500
_MAX_WORDS_OF_A_THING = 2


class RunningLines:
    """Knows the headers and footers of a document, which would fill every chunk.

    One is a line among the first two or the last two of a page that stood at the same edge of three pages before. The
    number of the page in it may grow as the pages do; any other that does (of an invoice, of a lesson) is content.
    """

    def __init__(self) -> None:
        self._appearances: Counter[tuple[bool, str]] = Counter()

    def left_out_of(self, page: PlacedText, index: int) -> PlacedText:
        """The text of the page of that index without those lines. Pages come in order."""
        lines = page.text.split("\n")
        shown = [at for at, line in enumerate(lines) if line.strip()]
        edges = {**dict.fromkeys(shown[-_EDGE_LINES:], True), **dict.fromkeys(shown[:_EDGE_LINES], False)}
        dropped = set()
        for at, is_lower in edges.items():
            keys = {(is_lower, key) for key in _line_keys(lines[at], index)}
            if any(self._appearances[key] >= _MAX_APPEARANCES for key in keys):
                dropped.add(at)
            self._appearances.update(keys)
        if not dropped or dropped == set(shown):  # a page that says nothing else means what it says
            return page
        starts = [0, *accumulate(len(line) + 1 for line in lines)]
        ranges = [(starts[at], min(starts[at + 1], len(page.text))) for at in sorted(dropped)]
        return page.without(ranges).stripped()


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
