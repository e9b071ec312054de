"""OpenDocument texts (ODT). They have no pages: where one ends is decided by the program that shows them."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from services.embeddings.adapters.extractors.archive import Archive, attribute, local, parse_xml, whole
from services.embeddings.adapters.extractors.flow import flow_pages, join_paragraphs
from services.embeddings.adapters.extractors.format import Format, Sample, Source, encrypted
from services.embeddings.adapters.extractors.formula import LEVEL, LOWERED, RAISED, formula_line, written
from services.embeddings.adapters.extractors.numbering import OpenNumbering
from services.embeddings.adapters.extractors.tables import cell_above, table_text
from services.embeddings.domain.document import Page, PageImage

_MEDIA_TYPE = "application/vnd.oasis.opendocument.text"
_SKIPPED = {"tracked-changes", "sequence-decls", "forms", "variable-decls", "tracked-change", "desc", "title"}
_LEVELS = {"super": RAISED, "sub": LOWERED}
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
        yield from flow_pages(_Reader(archive).flow())


class _Reader:
    """Follows the elements of one document."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._content = parse_xml(archive.required("content.xml"))
        self._styles = archive.xml("styles.xml")
        self._numbering = OpenNumbering((self._styles, self._content))
        self._levels = {
            attribute(style, "name"): _LEVELS.get(attribute(look, "text-position").split(" ")[0], "")
            for part in (self._styles, self._content)
            for style in part.iter()
            if local(style) == "style"
            for look in style
            if attribute(look, "text-position")
        }

    def flow(self) -> Iterator[str | PageImage]:
        """The headers and footers, then paragraphs, lists, tables and images in order."""
        furniture = [part for part in self._styles.iter() if local(part) in ("header", "footer")]
        yield from dict.fromkeys(piece for part in furniture for piece in self._blocks(part) if isinstance(piece, str))
        for body in self._content:
            if local(body) == "body":
                yield from self._blocks(body)

    def _blocks(self, parent: Element) -> Iterator[str | PageImage]:
        for element in parent:
            match local(element):
                case "p" | "h":
                    text = [self._numbering.label(element), " "]
                    hanging: list[str | PageImage] = []
                    self._inline(element, text, hanging)
                    yield written("".join(text)).strip() if "".join(text[2:]).strip() else ""
                    yield from hanging
                case "list":
                    self._numbering.begin(element)
                    pieces = list(self._blocks(element))
                    self._numbering.end()
                    yield "\n".join(piece.strip() for piece in pieces if isinstance(piece, str) and piece.strip())
                    yield from (piece for piece in pieces if not isinstance(piece, str))
                case "list-item" | "list-header":
                    self._numbering.item(element)
                    yield from self._blocks(element)
                case "table":
                    yield from self._table(element)
                case "image":
                    image = self._archive.image(attribute(element, "href"))
                    if image is not None:
                        yield image
                case name if name not in _SKIPPED:
                    yield from self._blocks(element)

    def _table(self, table: Element) -> Iterator[str | PageImage]:
        rows: list[list[str]] = []
        images: list[PageImage] = []
        reaching: dict[int, int] = {}  # by column, how many rows more a high cell fills
        for row in _within(table, "table-row"):
            rows.append([])
            for cell in _within(row, *_CELLS):
                pieces = list(self._blocks(cell))
                is_covered = local(cell) == "covered-table-cell"
                text = "" if is_covered else join_paragraphs(piece for piece in pieces if isinstance(piece, str))
                for _ in range(min(whole(cell, "number-columns-repeated") or 1, _MAX_REPEATED)):
                    column = len(rows[-1])
                    left = reaching.pop(column, 0) if is_covered else (whole(cell, "number-rows-spanned") or 1) - 1
                    rows[-1].append(cell_above(rows) if is_covered and left else text)
                    reaching[column] = max(0, left - is_covered)
                images += [piece for piece in pieces if not isinstance(piece, str)]
        yield table_text(rows)
        yield from images

    def _inline(self, parent: Element, text: list[str], hanging: list[str | PageImage]) -> None:
        """The characters of a paragraph; its notes, comments, text boxes and images hang on it."""
        text.append(parent.text or "")
        for element in parent:
            match local(element):
                case "s":
                    text.append(" " * min(whole(element, "c") or 1, _MAX_REPEATED))
                case "tab":
                    text.append("\t")
                case "line-break":
                    text.append("\n")
                case "frame" if (formula := self._formula(element)) is not None:
                    text.append(formula_line(formula))
                case "note" | "annotation" | "frame" | "custom-shape" | "text-box":
                    hanging.extend(self._blocks(element))
                case name if name not in _SKIPPED:
                    level = self._levels.get(attribute(element, "style-name"), "") if name == "span" else ""
                    text.append(level)
                    self._inline(element, text, hanging)
                    text.append(LEVEL if level else "")
            text.append(element.tail or "")

    def _formula(self, frame: Element) -> Element | None:
        """The formula that a frame shows, which is a document of its own in the archive."""
        for shown in frame:
            if local(shown) == "object":
                root = self._archive.xml(f"{attribute(shown, 'href').removeprefix('./')}/content.xml")
                return root if local(root) == "math" else None
        return None


def _within(parent: Element, *names: str) -> Iterator[Element]:
    for element in parent:
        if local(element) in names:
            yield element
        elif local(element) not in ("table", *_CELLS):
            yield from _within(element, *names)


FORMAT = Format(name="OpenDocument", media_types={_MEDIA_TYPE: (".odt", ".ott")}, recognise=recognise, read=read)
