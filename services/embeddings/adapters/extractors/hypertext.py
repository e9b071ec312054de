"""HTML to a flow of text: its blocks as paragraphs, its tables as rows, nothing of what a reader does not see."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import unquote_to_bytes
from xml.etree.ElementTree import Element, SubElement

from services.embeddings.adapters.extractors.encoding import decode
from services.embeddings.adapters.extractors.flow import join_paragraphs
from services.embeddings.adapters.extractors.formula import LEVEL, LOWERED, RAISED, formula_line, written
from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.markup import Tag, tokens
from services.embeddings.adapters.extractors.numbering import shown_number
from services.embeddings.adapters.extractors.pictures import page_image
from services.embeddings.adapters.extractors.tables import table_text
from services.embeddings.domain.document import PageImage

_HIDDEN = {"template", "noscript"}
_HIDDEN_IN_DRAWINGS = {"title", "desc", "metadata", "defs"}
# fmt: off
_PARAGRAPHS = {
    "address", "article", "aside", "blockquote", "body", "caption", "center", "details", "dialog", "dir", "div", "dl",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr",
    "legend", "main", "menu", "nav", "noframes", "ol", "p", "pre", "section", "summary", "text", "textarea", "title",
    "ul",
}
# fmt: on
_CELLS = {"tr", "td", "th"}
_LINES = {"br", "li", "dt", "dd", "option", *_CELLS}  # a cell without a table is a line
_LEVELS = {"sup": RAISED, "sub": LOWERED}
_ENDING_DRAWINGS = {"table", "img", *(_PARAGRAPHS - {"text", "title"}), *_LINES}
_LISTS = {"ol", "ul", "menu", "dir"}
_WHOLE = re.compile(r"-?\d{1,9}")
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
# A table with a longer cell lays out the page, unless it looks like one of data.
_MAX_CELL = 300
_MIN_ROWS = 3
_MAX_SPAN = 1000
_CHARSET = re.compile(rb"""(?:charset|<\?xml[^>]*\sencoding)\s*=\s*["']?\s*([\w-]+)""", re.IGNORECASE)


def decode_html(content: bytes, *, declared: str | None = None) -> str:
    """The characters of an HTML document: what is not UTF-8 by the encoding that came with it, or that it declares."""
    found = _CHARSET.search(content[:4096])
    name = found.group(1).decode("ascii", "replace").lower() if found else ""
    # One that could be read so far does not have two bytes a character, whatever it says.
    return decode(content, declared=declared or (None if name.startswith(("utf-16", "utf-32")) else name))


def html_flow(
    html: str, limits: ExtractionLimits, find: Callable[[str], bytes] = lambda _: b""
) -> Iterator[str | PageImage]:
    """Paragraphs, tables and images: those within, and those that ``find`` has by their address. Nothing is fetched."""
    reader = _Reader(limits, find)
    for token in tokens(html):
        if isinstance(token, str):
            reader.take(token)
        else:
            if token.opens:
                reader.begin(token)
            if token.closes:
                reader.end(token.name)
    return reader.flow()


class _Reader:
    """Follows the tags and the text of one document."""

    def __init__(self, limits: ExtractionLimits, find: Callable[[str], bytes]) -> None:
        self._limits = limits
        self._find = find
        self._blocks: list[str | PageImage] = []
        self._text: list[str] = []
        self._hidden: list[str] = []
        self._drawings = 0
        self._formula: list[Element] = []
        self._lists: list[tuple[int, str] | None] = []
        self._label = ""
        self._verbatim = 0
        self._tables: list[_Table] = []

    def flow(self) -> Iterator[str | PageImage]:
        """What was read, with what broken documents leave open."""
        self._end_formula()
        while self._tables:
            self._end_table()
        self._end_block()
        yield from self._blocks

    def begin(self, opened: Tag) -> None:
        """Begin what the tag begins."""
        tag = opened.name
        if tag in _ENDING_DRAWINGS:
            self._end_formula()
            self._end_drawing()
        if self._formula:
            self._formula.append(SubElement(self._formula[-1], tag))
        elif self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.append(tag)
        elif tag in _HIDDEN or (self._drawings and tag in _HIDDEN_IN_DRAWINGS):
            self._hidden.append(tag)
        elif tag == "math":
            self._formula.append(Element(tag))
        else:
            self._begin_shown(tag, opened)

    def _begin_shown(self, tag: str, opened: Tag) -> None:
        if tag == "svg":
            self._drawings += 1
        elif tag in ("img", "image"):
            self._show(opened.attributes)
        elif tag in _LEVELS:
            self._text.append(_LEVELS[tag])
        elif tag in _PARAGRAPHS:
            self._end_block()
            self._verbatim += tag == "pre"
            self._mark_layout(tag)
            if tag in _LISTS:
                self._lists.append(_numbering(opened.attributes) if tag == "ol" else None)
        elif tag == "table":
            self._end_block()
            self._mark_layout(tag)
            self._tables.append(_Table(self._blocks))
            self._blocks = []
        elif tag in _CELLS and self._tables:
            self._end_cell()
            self._tables[-1].begin(tag, opened.attributes)
        elif tag in _LINES or (tag == "tspan" and {"x", "y"} & opened.attributes.keys()):
            self._text.append("\n")
            if tag == "li":
                self._begin_item(opened.attributes)

    def _begin_item(self, attributes: dict[str, str]) -> None:
        """Count an item, whose number comes before its first words."""
        self._label = ""
        if self._lists and (numbering := self._lists[-1]):
            number = int(given[0]) if (given := _WHOLE.fullmatch(attributes.get("value", ""))) else numbering[0]
            self._lists[-1] = number + 1, numbering[1]
            self._label = f"{shown_number(number, numbering[1])}. "

    def end(self, tag: str) -> None:
        """End what the tag ends."""
        if tag == "svg":
            self._end_drawing()
        elif self._formula:
            if tag == "math":
                self._end_formula()
            elif tag == self._formula[-1].tag:
                self._formula.pop()
        elif self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.pop()
        elif tag in _LEVELS:
            self._text.append(LEVEL)
        elif tag in _PARAGRAPHS:
            self._end_block()
            self._verbatim = max(0, self._verbatim - (tag == "pre"))
            if tag in _LISTS and self._lists:
                self._lists.pop()
                self._label = ""
        elif tag in _CELLS and self._tables:
            self._end_cell()
        elif tag == "table" and self._tables:
            self._end_table()

    def take(self, data: str) -> None:
        """Take text as a browser shows it."""
        if self._formula:
            SubElement(self._formula[-1], "mtext").text = data
        elif not self._hidden:
            if self._label and data.strip():
                self._text.append(self._label)
                self._label = ""
            self._text.append(data if self._verbatim else " ".join(re.split(r"[ \t\r\n\f]+", data)))

    def _mark_layout(self, tag: str) -> None:
        if self._tables and (tag in _HEADINGS or tag == "table"):
            self._tables[-1].lays_out = True

    def _end_formula(self) -> None:
        if self._formula:
            self._text.append(formula_line(self._formula[0]))
            self._formula = []

    def _end_drawing(self) -> None:
        if self._drawings:
            self._drawings -= 1
            self._hidden = [one for one in self._hidden if one in _HIDDEN]

    def _show(self, attributes: dict[str, str]) -> None:
        address = attributes.get("src") or attributes.get("href") or attributes.get("xlink:href") or ""
        image = page_image(embedded(address) or self._find(address), self._limits)
        if image is not None:
            self._end_block()
            self._blocks.append(image)
        elif attributes.get("alt"):
            self._text.append(f" {attributes['alt']} ")

    def _end_block(self) -> None:
        text = "\n".join(re.sub(r" {2,}", " ", line).strip() for line in written("".join(self._text)).split("\n"))
        self._text = []
        if text.strip():
            self._blocks.append(re.sub(r"\n{2,}", "\n", text.strip()))

    def _end_cell(self) -> None:
        self._end_block()
        self._tables[-1].end_cell(self._blocks)
        self._blocks = []

    def _end_table(self) -> None:
        self._end_cell()
        table = self._tables.pop()
        self._blocks = [*table.before, *table.flow()]


class _Table:
    """Rows of cells in the columns where a browser shows them: an empty one has its place, a wide one takes several."""

    def __init__(self, before: list[str | PageImage]) -> None:
        self.before = before
        self.lays_out = False
        self._has_header = False
        self._rows: list[list[list[str | PageImage]]] = []
        self._reaching: dict[int, tuple[int, list[str | PageImage]]] = {}
        self._open: tuple[int, int] | None = None

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        """Begin a row, after what reaches down into the end of the one before, or a cell, with its span."""
        if tag != "tr":
            self._open = _span(attributes.get("colspan")), _span(attributes.get("rowspan"))
            self._has_header |= tag == "th"
            return
        if self._rows:
            self._reach_down()
        self._rows.append([])

    def end_cell(self, content: list[str | PageImage]) -> None:
        """End the cell that is open; content outside of one is a cell of its own."""
        if self._open is None and not content:
            return
        width, height = self._open or (1, 1)
        self._open = None
        if not self._rows:
            self._rows.append([])
        self._reach_down()
        for place in range(width):
            piece = [] if place else content
            if height > 1:
                texts: list[str | PageImage] = [one for one in piece if isinstance(one, str)]
                self._reaching[len(self._rows[-1])] = height - 1, texts
            self._rows[-1].append(piece)

    def _reach_down(self) -> None:
        """Put what reaches down from the rows above where the next cell would stand."""
        row = self._rows[-1]
        while len(row) in self._reaching:
            left, content = self._reaching.pop(len(row))
            if left > 1:
                self._reaching[len(row)] = left - 1, content
            row.append(content)

    def flow(self) -> Iterator[str | PageImage]:
        """The table as text, then its images; one that only lays out a page, cell by cell.

        A table with long cells is one of data when it has header cells or several rows of cells, and neither a heading
        nor another table within.
        """
        cells = [cell for row in self._rows for cell in row]
        texts = [
            [join_paragraphs(piece for piece in cell if isinstance(piece, str)) for cell in row] for row in self._rows
        ]
        is_long = any(len(text) > _MAX_CELL for row in texts for text in row)
        several_rows = sum(sum(map(bool, row)) > 1 for row in texts) >= _MIN_ROWS
        if not is_long or (not self.lays_out and (self._has_header or several_rows)):
            yield table_text(texts)
            yield from (piece for cell in cells for piece in cell if not isinstance(piece, str))
        else:
            yield from (piece for cell in cells for piece in cell)


def embedded(address: str) -> bytes:
    """The content of a ``data:`` address, empty for any other and for a broken one."""
    scheme, _, content = address.partition(",")
    if scheme[:5].lower() != "data:":
        return b""
    plain = unquote_to_bytes(content)
    with suppress(ValueError):
        return b64decode(plain) if scheme.lower().endswith(";base64") else plain
    return b""


def _numbering(attributes: dict[str, str]) -> tuple[int, str] | None:
    """The number of the first item of a list and the form of all; None for one that shows none."""
    if "none" in attributes.get("style", ""):
        return None
    start = _WHOLE.fullmatch(attributes.get("start", ""))
    return int(start[0]) if start else 1, attributes.get("type", "1")


def _span(given: str | None) -> int:
    """How many columns or rows a cell takes."""
    return min(int(given), _MAX_SPAN) if given and given.isascii() and given.isdigit() and int(given) else 1
