"""What stands on a slide or is drawn on a sheet: texts, tables, images, charts (DrawingML)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from xml.etree.ElementTree import Element

from services.embeddings.adapters.extractors.archive import Archive, attribute, local, shown
from services.embeddings.adapters.extractors.formula import LEVEL, LOWERED, RAISED, formula_line, written
from services.embeddings.adapters.extractors.tables import cell_above, table_text
from services.embeddings.domain.document import PageImage

_SKIPPED = {"rPr", "pPr", "bodyPr", "spPr"}
# Placeholders that repeat on every slide and in every note.
_FURNITURE = {"sldNum", "dt", "ftr", "hdr", "sldImg"}


def drawing_flow(archive: Archive, part: str) -> Iterator[str | PageImage]:
    """The pieces of a drawing in its own order, which is from back to front, then its charts and diagrams."""
    yield from _drawing(archive.xml(part), archive.images_of(part))
    yield from charts_flow(archive, part)


def charts_flow(archive: Archive, part: str) -> Iterator[str | PageImage]:
    """The charts and diagrams of an Office part."""
    for kind, target in archive.relationships(part).values():
        if kind == "chart":
            yield _chart_text(archive.xml(target))
        elif kind == "diagramData":
            yield from _drawing(archive.xml(target), archive.images_of(target))


def _drawing(parent: Element, image: Callable[[str], PageImage | None]) -> Iterator[str | PageImage]:
    for element in shown(parent):
        name = local(element)
        if name in ("txBody", "t"):
            yield _lines(element)
        elif name == "tbl":
            rows: list[list[str]] = []
            for row in (one for one in element if local(one) == "tr"):
                rows.append([])
                for cell in (one for one in row if local(one) == "tc"):
                    is_merged = attribute(cell, "vMerge") in ("1", "true")
                    rows[-1].append(cell_above(rows) if is_merged else _lines(cell))
            yield table_text(rows)
        elif name == "blip":
            picture = image(attribute(element, "embed"))
            if picture is not None:
                yield picture
        elif name not in _SKIPPED and not _is_furniture(element):
            yield from _drawing(element, image)


def _is_furniture(shape: Element) -> bool:
    return local(shape) == "sp" and any(
        local(element) == "ph" and attribute(element, "type") in _FURNITURE for element in shape.iter()
    )


def _lines(body: Element) -> str:
    """The paragraphs of a text body as lines."""
    paragraphs: list[Iterable[Element]] = [element for element in body.iter() if local(element) == "p"]
    return "\n".join(written("".join(_runs(paragraph))).strip() for paragraph in paragraphs or [[body]])


def _runs(parent: Iterable[Element]) -> Iterator[str]:
    for element in shown(parent):
        match local(element):
            case "t":
                yield element.text or ""
            case "br":
                yield "\n"
            case "tab":
                yield "\t"
            case "oMath":
                yield formula_line(element)
            case "r":
                baseline = next((attribute(one, "baseline") for one in element if local(one) == "rPr"), "")
                is_level = baseline in ("", "0", "0%")
                yield "" if is_level else LOWERED if baseline.startswith("-") else RAISED
                yield from _runs(element)
                yield "" if is_level else LEVEL
            case _:
                yield from _runs(element)


def _chart_text(chart: Element) -> str:
    """The titles, and the series as a table: the categories above, a row for each series."""
    titles = [_lines(element) for element in chart.iter() if local(element) == "title"]
    series = [element for element in chart.iter() if local(element) == "ser"]
    rows = [["", *_cached(series[0], "cat")]] if series else []
    rows += [[" ".join(_cached(one, "tx")), *_cached(one, "val")] for one in series]
    return "\n".join([*titles, table_text(rows)])


def _cached(series: Element, name: str) -> list[str]:
    """The values that a chart remembers of the cells that it shows."""
    parts = [part for part in series if local(part) == name]
    return [element.text or "" for part in parts for element in part.iter() if local(element) == "v"]
