"""OpenDocument texts (ODT). They have no pages: where one ends is decided by the program that shows them."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from services.embeddings.adapters.extractors.archive import Archive, attribute, local
from services.embeddings.adapters.extractors.flow import flow_pages, join_paragraphs
from services.embeddings.adapters.extractors.format import Format, Sample, Source, encrypted
from services.embeddings.adapters.extractors.tables import cell_above, table_text
from services.embeddings.domain.document import Page, PageImage

_MEDIA_TYPE = "application/vnd.oasis.opendocument.text"
_SKIPPED = {"tracked-changes", "sequence-decls", "forms", "variable-decls", "tracked-change", "desc", "title"}
_MAX_REPEATED = 1000
# A covered one is under a wide or high one, and keeps its place in the row.
_CELLS = ("table-cell", "covered-table-cell")


def recognise(sample: Sample) -> str | None:
    """An archive that says so in its first member."""
    return _MEDIA_TYPE if sample.mimetype.startswith(_MEDIA_TYPE) else None


def read(source: Source) -> Iterator[Page]:
    """The headers and footers once, then the text, in pages without numbers that end where an image stands."""
    with Archive(source.path, source.limits) as archive:
        if any(local(element) == "encryption-data" for element in archive.xml("META-INF/manifest.xml").iter()):
            raise encrypted("the OpenDocument file cannot be read without a password")
        yield from flow_pages(_document(archive))


def _document(archive: Archive) -> Iterator[str | PageImage]:
    furniture = [part for part in archive.xml("styles.xml").iter() if local(part) in ("header", "footer")]
    yield from dict.fromkeys(piece for part in furniture for piece in _blocks(part, archive) if isinstance(piece, str))
    for body in archive.xml("content.xml"):
        if local(body) == "body":
            yield from _blocks(body, archive)


def _blocks(parent: Element, archive: Archive) -> Iterator[str | PageImage]:
    for element in parent:
        name = local(element)
        if name in ("p", "h"):
            text: list[str] = []
            hanging: list[str | PageImage] = []
            _inline(element, archive, text, hanging)
            yield "".join(text)
            yield from hanging
        elif name == "list":
            pieces = list(_blocks(element, archive))
            yield "\n".join(piece.strip() for piece in pieces if isinstance(piece, str) and piece.strip())
            yield from (piece for piece in pieces if not isinstance(piece, str))
        elif name == "table":
            yield from _table(element, archive)
        elif name == "image":
            image = archive.image(attribute(element, "href"))
            if image is not None:
                yield image
        elif name not in _SKIPPED:
            yield from _blocks(element, archive)


def _table(table: Element, archive: Archive) -> Iterator[str | PageImage]:
    rows: list[list[str]] = []
    images: list[PageImage] = []
    reaching: dict[int, int] = {}  # by column, how many rows more a high cell fills
    for row in _within(table, "table-row"):
        rows.append([])
        for cell in _within(row, *_CELLS):
            pieces = list(_blocks(cell, archive))
            is_covered = local(cell) == "covered-table-cell"
            text = "" if is_covered else join_paragraphs(piece for piece in pieces if isinstance(piece, str))
            for _ in range(min(int(attribute(cell, "number-columns-repeated") or 1), _MAX_REPEATED)):
                column = len(rows[-1])
                left = reaching.pop(column, 0) if is_covered else int(attribute(cell, "number-rows-spanned") or 1) - 1
                rows[-1].append(cell_above(rows) if is_covered and left else text)
                reaching[column] = max(0, left - is_covered)
            images += [piece for piece in pieces if not isinstance(piece, str)]
    yield table_text(rows)
    yield from images


def _within(parent: Element, *names: str) -> Iterator[Element]:
    for element in parent:
        if local(element) in names:
            yield element
        elif local(element) not in ("table", *_CELLS):
            yield from _within(element, *names)


def _inline(parent: Element, archive: Archive, text: list[str], hanging: list[str | PageImage]) -> None:
    """The characters of a paragraph; its notes, comments, text boxes and images hang on it."""
    text.append(parent.text or "")
    for element in parent:
        match local(element):
            case "s":
                text.append(" " * min(int(attribute(element, "c") or 1), _MAX_REPEATED))
            case "tab":
                text.append("\t")
            case "line-break":
                text.append("\n")
            case "note" | "annotation" | "frame" | "custom-shape" | "text-box":
                hanging.extend(_blocks(element, archive))
            case name if name not in _SKIPPED:
                _inline(element, archive, text, hanging)
        text.append(element.tail or "")


FORMAT = Format(name="OpenDocument", media_types={_MEDIA_TYPE: (".odt", ".ott")}, recognise=recognise, read=read)
