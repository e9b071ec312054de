"""Word documents (DOCX). They have no pages: where one ends is decided by the program that shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from xml.etree.ElementTree import Element

from services.embeddings.adapters.extractors.archive import Archive, attribute, local, shown
from services.embeddings.adapters.extractors.drawing import charts_flow
from services.embeddings.adapters.extractors.eml import mail_flow
from services.embeddings.adapters.extractors.encoding import decode
from services.embeddings.adapters.extractors.flow import flow_pages, join_paragraphs
from services.embeddings.adapters.extractors.format import Format, Sample, Source
from services.embeddings.adapters.extractors.formula import LEVEL, LOWERED, RAISED, formula_line, written
from services.embeddings.adapters.extractors.hypertext import decode_html, html_flow
from services.embeddings.adapters.extractors.limits import whatever_breaks
from services.embeddings.adapters.extractors.numbering import Numbering
from services.embeddings.adapters.extractors.rtf import rtf_flow
from services.embeddings.adapters.extractors.symbols import symbol
from services.embeddings.adapters.extractors.tables import cell_above, table_text
from services.embeddings.domain.document import Page, PageFault, PageImage

_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_NOTES = ("footnotes", "endnotes", "comments")
# What was deleted or moved away, and what says how the rest looks.
_SKIPPED = {"del", "moveFrom", "instrText", "delText", "pPr", "rPr", "sectPr"}
_LEVELS = {"superscript": RAISED, "subscript": LOWERED}
_MAX_COLUMNS = 1000
_SPACES = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}


def recognise(sample: Sample) -> str | None:
    """An Office archive with a ``word`` folder."""
    return _MEDIA_TYPE if any(name.lower().startswith("word/") for name in sample.members) else None


def read(source: Source) -> Iterator[Page]:
    """The text with headers, charts, notes and comments, in pages without numbers that end where an image stands."""
    with Archive(source.path, source.limits) as archive:
        yield from flow_pages(_document(archive))
        yield from (Page(None, "", fault=PageFault.UNREADABLE) for _ in archive.unread)


def _document(archive: Archive) -> Iterator[str | PageImage]:
    main = archive.main_part()
    archive.required(main)
    related = list(archive.relationships(main).values())
    parts = dict(related)
    numbering = Numbering(archive.xml(parts.get("numbering", "")), archive.xml(parts.get("styles", "")))

    def flow(*wanted: str) -> Iterator[str | PageImage]:
        for kind in wanted:
            for part in (target for one, target in related if one == kind):
                yield from _Part(archive, part, numbering).flow()

    # Headers and footers are made anew for each section, and for even and first pages.
    yield from dict.fromkeys(piece for piece in flow("header") if isinstance(piece, str))
    yield from _Part(archive, main, numbering).flow()
    yield from charts_flow(archive, main)
    yield from flow(*_NOTES)
    yield from dict.fromkeys(piece for piece in flow("footer") if isinstance(piece, str))


class _Part:
    """Reads one part of the document: the text itself, its notes, a header."""

    def __init__(self, archive: Archive, part: str, numbering: Numbering) -> None:
        self._archive = archive
        self._numbering = numbering
        self._root = archive.xml(part)
        self._image = archive.images_of(part)
        self._related = archive.relationships(part)
        self._level = LEVEL

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
        for element in shown(parent):
            name = local(element)
            if name == "p":
                self._level = LEVEL
                text: list[str] = []
                hanging: list[tuple[bool, str | PageImage]] = []
                label = self._numbering.label(element)
                self._run(element, text, hanging)
                line = written("".join(text)).strip()
                yield _is_item(element), f"{label} {line}".strip() if line else ""
                yield from hanging
            elif name == "tbl":
                yield from ((False, piece) for piece in self._table(element))
            elif name == "altChunk":
                yield from ((False, piece) for piece in self._other_document(attribute(element, "id")))
            elif name not in _SKIPPED:
                yield from self._blocks(element)

    def _other_document(self, key: str) -> Iterable[str | PageImage]:
        """A document of another kind within this one, as programs write that put Word files together."""
        _, name = self._related.get(key, ("", ""))
        with whatever_breaks():
            return [*_imported(self._archive, name)]
        self._archive.unread.append(name)
        return ()

    def _table(self, table: Element) -> Iterator[str | PageImage]:
        rows: list[list[str]] = []
        images: list[PageImage] = []
        for row in _within(table, "tr"):
            rows.append([])
            for cell in _within(row, "tc"):
                pieces = [piece for _, piece in self._blocks(cell)]
                if _property(cell, "vMerge", "continue") not in (None, "restart"):
                    rows[-1].append(cell_above(rows))
                else:
                    rows[-1].append(join_paragraphs(piece for piece in pieces if isinstance(piece, str)))
                rows[-1] += [""] * (_columns(cell) - 1)
                images += [piece for piece in pieces if isinstance(piece, PageImage)]
        yield table_text(rows)
        yield from images

    def _run(self, parent: Element, text: list[str], hanging: list[tuple[bool, str | PageImage]]) -> None:
        for element in shown(parent):
            name = local(element)
            if name == "t":
                text.append(element.text or "")
            elif name == "r":
                level = _LEVELS.get(_property(element, "vertAlign") or "", LEVEL)
                text.append(level if level != self._level else "")
                self._level = level
                self._run(element, text, hanging)
            elif name == "oMath":
                text.append(formula_line(element))
            elif name == "sym":
                text.append(symbol(attribute(element, "font"), attribute(element, "char")))
            elif name == "textpath":
                hanging.append((False, attribute(element, "string")))
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


def _imported(archive: Archive, name: str) -> Iterator[str | PageImage]:
    """A member that is a document of its own. Raises ValueError for one of a kind that is not read here."""
    content, suffix = archive.required(name), PurePath(name).suffix.lower()
    if content.startswith(b"PK"):
        with archive.within(content) as inner:
            yield from _document(inner)
            archive.unread += inner.unread
    elif content.startswith(rb"{\rtf"):
        yield from rtf_flow(content, archive.limits)
    elif suffix in (".mht", ".mhtml", ".eml"):
        yield from mail_flow(content, archive.limits)
    elif suffix in (".htm", ".html", ".xhtml"):
        yield from html_flow(decode_html(content), archive.limits)
    elif suffix == ".txt":
        yield decode(content)
    else:
        raise ValueError(name)


def _within(parent: Element, name: str) -> Iterator[Element]:
    """The rows of a table or the cells of a row, wrapped in other elements or not; none of a nested table."""
    for element in parent:
        if local(element) == name:
            yield element
        elif local(element) not in _SKIPPED:
            yield from _within(element, name)


def _columns(cell: Element) -> int:
    """How many columns a cell takes."""
    columns = _property(cell, "gridSpan") or ""
    return min(int(columns), _MAX_COLUMNS) if columns.isdecimal() else 1


def _property(element: Element, name: str, usual: str = "") -> str | None:
    """The value of a property of a cell or a run, ``usual`` where it has none; None where the property is not given."""
    for properties in element:
        for one in properties if local(properties) in ("tcPr", "rPr") else ():
            if local(one) == name:
                return attribute(one, "val") or usual
    return None


def _is_item(paragraph: Element) -> bool:
    return any(
        local(child) == "numPr" for properties in paragraph if local(properties) == "pPr" for child in properties
    )


FORMAT = Format(name="Word", media_types={_MEDIA_TYPE: (".docx", ".docm")}, recognise=recognise, read=read)
