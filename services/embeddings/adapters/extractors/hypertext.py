"""HTML to a flow of text: its blocks as paragraphs, its tables as rows, nothing of what a reader does not see."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser

from services.embeddings.adapters.extractors.encoding import decode
from services.embeddings.adapters.extractors.flow import join_paragraphs
from services.embeddings.adapters.extractors.tables import table_text
from services.embeddings.domain.document import PageImage

_HIDDEN = {"script", "style", "template", "noscript", "object", "svg", "math", "textarea"}
# fmt: off
_PARAGRAPHS = {
    "address", "article", "aside", "blockquote", "body", "caption", "details", "div", "dl", "fieldset", "figcaption",
    "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "nav", "ol", "p", "pre",
    "section", "summary", "title", "ul",
}
# fmt: on
_LINES = {"br", "li", "dt", "dd", "option"}
# A table with longer cells is there for the layout of the page: its cells are read one after another.
_MAX_CELL = 300
_CHARSET = re.compile(rb"""charset\s*=\s*["']?\s*([\w-]+)""", re.IGNORECASE)


def decode_html(content: bytes) -> str:
    """The characters of an HTML document, by the encoding that it declares where it is not UTF-8."""
    declared = _CHARSET.search(content[:4096])
    name = declared.group(1).decode("ascii", "replace").lower() if declared else ""
    # One that could be read so far does not have two bytes a character, whatever it says.
    return decode(content, declared=None if name.startswith(("utf-16", "utf-32")) else name)


def html_flow(html: str, image: Callable[[str], PageImage | None] = lambda _: None) -> Iterator[str | PageImage]:
    """Paragraphs, tables and images. ``image`` finds an image by its address; nothing is ever fetched."""
    parser = _Reader(image)
    parser.feed(html)
    parser.close()
    return parser.flow()


class _Reader(HTMLParser):
    def __init__(self, image: Callable[[str], PageImage | None]) -> None:
        super().__init__(convert_charrefs=True)
        self._image = image
        self._blocks: list[str | PageImage] = []
        self._text: list[str] = []
        self._hidden: list[str] = []
        self._verbatim = 0
        self._tables: list[_Table] = []

    def flow(self) -> Iterator[str | PageImage]:
        """What was read, with what broken documents leave open."""
        while self._tables:
            self._end_table()
        self._end_block()
        yield from self._blocks

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin what the tag begins."""
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.append(tag)
        elif tag in _HIDDEN:
            self._hidden.append(tag)
        elif tag in _PARAGRAPHS:
            self._end_block()
            self._verbatim += tag == "pre"
        elif tag in _LINES:
            self._text.append("\n")
        elif tag == "table":
            self._end_block()
            self._tables.append(_Table(self._blocks))
            self._blocks = []
        elif tag in ("tr", "td", "th") and self._tables:
            self._end_cell(begins_row=tag == "tr")
        elif tag == "img":
            self._show(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        """End what the tag ends."""
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.pop()
        elif tag in _PARAGRAPHS:
            self._end_block()
            self._verbatim = max(0, self._verbatim - (tag == "pre"))
        elif tag in ("td", "th", "tr") and self._tables:
            self._end_cell(begins_row=False)
        elif tag == "table" and self._tables:
            self._end_table()

    def handle_data(self, data: str) -> None:
        """Take text as a browser shows it."""
        if not self._hidden:
            self._text.append(data if self._verbatim else " ".join(re.split(r"[ \t\r\n\f]+", data)))

    def _show(self, attributes: dict[str, str | None]) -> None:
        image = self._image(attributes.get("src") or "")
        if image is not None:
            self._end_block()
            self._blocks.append(image)
        elif attributes.get("alt"):
            self._text.append(f" {attributes['alt']} ")

    def _end_block(self) -> None:
        text = "\n".join(re.sub(r" {2,}", " ", line).strip() for line in "".join(self._text).split("\n"))
        self._text = []
        if text.strip():
            self._blocks.append(re.sub(r"\n{2,}", "\n", text.strip()))

    def _end_cell(self, *, begins_row: bool) -> None:
        self._end_block()
        table = self._tables[-1]
        if self._blocks:
            table.add(self._blocks)
            self._blocks = []
        if begins_row:
            table.rows.append([])

    def _end_table(self) -> None:
        self._end_cell(begins_row=False)
        table = self._tables.pop()
        self._blocks = [*table.before, *table.flow()]


class _Table:
    def __init__(self, before: list[str | PageImage]) -> None:
        self.before = before
        self.rows: list[list[list[str | PageImage]]] = []

    def add(self, cell: list[str | PageImage]) -> None:
        if not self.rows:
            self.rows.append([])
        self.rows[-1].append(cell)

    def flow(self) -> Iterator[str | PageImage]:
        cells = [cell for row in self.rows for cell in row]
        texts = [
            [join_paragraphs(piece for piece in cell if isinstance(piece, str)) for cell in row] for row in self.rows
        ]
        if all(len(text) <= _MAX_CELL for row in texts for text in row):
            yield table_text(texts)
            yield from (piece for cell in cells for piece in cell if not isinstance(piece, str))
        else:
            yield from (piece for cell in cells for piece in cell)
