"""Word documents (DOCX). They have no pages: where one ends is decided by the program that shows them."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from services.embeddings.adapters.extractors.archive import Archive, attribute, local
from services.embeddings.adapters.extractors.drawing import charts_flow
from services.embeddings.adapters.extractors.eml import mail_flow
from services.embeddings.adapters.extractors.flow import flow_pages, join_paragraphs
from services.embeddings.adapters.extractors.format import Format, Sample, Source
from services.embeddings.adapters.extractors.hypertext import decode_html, html_flow
from services.embeddings.adapters.extractors.numbering import Numbering
from services.embeddings.adapters.extractors.tables import cell_above, table_text
from services.embeddings.domain.document import Page, PageImage

_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
# The parts around the main one, in the order in which they are read; header and footer texts that repeat are read once.
_BEFORE = ("header",)
_AFTER = ("footnotes", "endnotes", "comments", "footer")
# What was deleted or moved away, and the older copy of what newer programs show.
_SKIPPED = {"del", "moveFrom", "Fallback", "instrText", "delText", "pPr", "rPr", "sectPr"}
_MAX_COLUMNS = 1000
_SPACES = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}


def recognise(sample: Sample) -> str | None:
    """An Office archive with a ``word`` folder."""
    return _MEDIA_TYPE if any(name.lower().startswith("word/") for name in sample.members) else None


def read(source: Source) -> Iterator[Page]:
    """The text with headers, charts, notes and comments, in pages without numbers that end where an image stands."""
    with Archive(source) as archive:
        yield from flow_pages(_document(archive))


def _document(archive: Archive) -> Iterator[str | PageImage]:
    main = archive.main_part()
    related = list(archive.relationships(main).values())
    parts = dict(related)
    numbering = Numbering(archive.xml(parts.get("numbering", "")), archive.xml(parts.get("styles", "")))
    around: set[str] = set()
    for wanted in (*_BEFORE, "", *_AFTER):
        if not wanted:
            yield from _Part(archive, main, numbering).flow()
            yield from charts_flow(archive, main)
        for part in (target for kind, target in related if kind == wanted):
            for piece in _Part(archive, part, numbering).flow():
                if isinstance(piece, str) and piece not in around:
                    around.add(piece)
                    yield piece


class _Part:
    """Reads one part of the document: the text itself, its notes, a header."""

    def __init__(self, archive: Archive, part: str, numbering: Numbering) -> None:
        self._archive = archive
        self._numbering = numbering
        self._root = archive.xml(part)
        self._image = archive.images_of(part)
        self._related = archive.relationships(part)

    def flow(self) -> Iterator[str | PageImage]:
        """Paragraphs and tables, the items of a list together, and images where they stand."""
        items: list[str] = []
        for is_item, piece in self._blocks(self._root):
            if is_item and isinstance(piece, str):
                items.append(piece)
                continue
            if items:
                yield "\n".join(items)
                items = []
            yield piece
        if items:
            yield "\n".join(items)

    def _blocks(self, parent: Element) -> Iterator[tuple[bool, str | PageImage]]:
        """Each block, true for an item of a list; the text boxes and images that hang on a paragraph come after it."""
        for element in parent:
            name = local(element)
            if name == "p":
                text: list[str] = []
                hanging: list[tuple[bool, str | PageImage]] = []
                label = self._numbering.label(element)
                self._run(element, text, hanging)
                written = "".join(text).strip()
                yield _is_item(element), f"{label} {written}".strip() if written else ""
                yield from hanging
            elif name == "tbl":
                yield from ((False, piece) for piece in self._table(element))
            elif name == "altChunk":
                yield from ((False, piece) for piece in self._other_document(attribute(element, "id")))
            elif name not in _SKIPPED:
                yield from self._blocks(element)

    def _other_document(self, key: str) -> Iterator[str | PageImage]:
        """A web page within the document, as programs write that make Word files of HTML."""
        _, name = self._related.get(key, ("", ""))
        content = self._archive.part(name)
        if name.lower().endswith((".mht", ".mhtml")):
            yield from mail_flow(content, self._archive.limits)
        elif name.lower().endswith((".htm", ".html", ".xhtml")):
            yield from html_flow(decode_html(content), self._archive.limits)

    def _table(self, table: Element) -> Iterator[str | PageImage]:
        rows: list[list[str]] = []
        images: list[PageImage] = []
        for row in _within(table, "tr"):
            rows.append([])
            for cell in _within(row, "tc"):
                pieces = [piece for _, piece in self._blocks(cell)]
                merged = _property(cell, "vMerge")
                if merged is not None and attribute(merged, "val") != "restart":
                    rows[-1].append(cell_above(rows))
                else:
                    rows[-1].append(join_paragraphs(piece for piece in pieces if isinstance(piece, str)))
                rows[-1] += [""] * (_columns(cell) - 1)
                images += [piece for piece in pieces if isinstance(piece, PageImage)]
        yield table_text(rows)
        yield from images

    def _run(self, parent: Element, text: list[str], hanging: list[tuple[bool, str | PageImage]]) -> None:
        for element in parent:
            name = local(element)
            if name == "t":
                text.append(element.text or "")
            elif name in _SPACES:
                text.append(_SPACES[name])
            elif name == "txbxContent":
                hanging.extend(self._blocks(element))
            elif name in ("blip", "imagedata"):
                image = self._image(attribute(element, "embed") or attribute(element, "id"))
                if image is not None:
                    hanging.append((False, image))
            elif name not in _SKIPPED:
                self._run(element, text, hanging)


def _within(parent: Element, name: str) -> Iterator[Element]:
    """The rows of a table or the cells of a row, wrapped in other elements or not; none of a nested table."""
    for element in parent:
        if local(element) == name:
            yield element
        elif local(element) not in _SKIPPED:
            yield from _within(element, name)


def _columns(cell: Element) -> int:
    """How many columns a cell takes."""
    span = _property(cell, "gridSpan")
    columns = attribute(span, "val") if span is not None else ""
    return min(int(columns), _MAX_COLUMNS) if columns.isdigit() else 1


def _property(cell: Element, name: str) -> Element | None:
    return next((one for part in cell if local(part) == "tcPr" for one in part if local(one) == name), None)


def _is_item(paragraph: Element) -> bool:
    return any(
        local(child) == "numPr" for properties in paragraph if local(properties) == "pPr" for child in properties
    )


FORMAT = Format(name="Word", media_types={_MEDIA_TYPE: (".docx", ".docm")}, recognise=recognise, read=read)
