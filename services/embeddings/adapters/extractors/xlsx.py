"""Excel workbooks (XLSX): a page for each sheet, hidden ones too, with the values that Excel last computed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from xml.etree.ElementTree import Element

from services.embeddings.adapters.extractors.archive import Archive, attribute, local, parse_elements, whole
from services.embeddings.adapters.extractors.drawing import drawing_flow
from services.embeddings.adapters.extractors.flow import numbered_pages
from services.embeddings.adapters.extractors.format import Format, Sample, Source
from services.embeddings.adapters.extractors.tables import tables_text
from services.embeddings.domain.document import Page, PageImage

_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_BUILT_IN_DATES = {*range(14, 18), 22, *range(27, 32), 36, *range(50, 59)}
_BUILT_IN_TIMES = {*range(18, 22), *range(32, 36), 45, 47}
_BUILT_IN_DURATIONS = {46}
_BUILT_IN_PERCENTS = {9, 10}
_LITERAL = re.compile(r'"[^"]*"|[\\_*].|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.IGNORECASE)
_DATE, _TIME, _DURATION, _PERCENT = "date", "time", "duration", "percent"
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_AREA = re.compile(r"([A-Z]{1,3})(\d{1,7}):[A-Z]{1,3}(\d{1,7})")
_COLUMN = re.compile(r"[A-Z]{1,3}")


def recognise(sample: Sample) -> str | None:
    """An Office archive with an ``xl`` folder."""
    return _MEDIA_TYPE if any(name.lower().startswith("xl/") for name in sample.members) else None


def read(source: Source) -> Iterator[Page]:
    """The sheets in the order of the workbook: name, cells row by row, then what is drawn on the sheet."""
    with Archive(source.path, source.limits) as archive:
        main = archive.main_part()
        targets = archive.relationships(main)
        book = archive.xml(main)
        cells = _Cells(
            archive, targets.values(), is_1904=any(attribute(one, "date1904") in ("1", "true") for one in book)
        )
        sheets = [element for element in book.iter() if local(element) == "sheet"]
        parts = ((targets.get(attribute(one, "id"), ("", ""))[1], attribute(one, "name")) for one in sheets)
        yield from numbered_pages(_sheet(archive, part, name, cells) for part, name in parts)


def _sheet(archive: Archive, part: str, name: str, cells: _Cells) -> Iterator[str | PageImage]:
    rows = list(cells.rows(archive.required(part)))
    related = archive.relationships(part).values()
    drawn = [piece for kind, target in related if kind == "drawing" for piece in drawing_flow(archive, target)]
    if rows or drawn:
        yield name
    yield tables_text(rows)
    for kind, target in related:
        if kind == "comments":
            yield from (_string(comment) for comment in archive.xml(target).iter() if local(comment) == "comment")
    yield from drawn


class _Cells:
    """Reads cells with the shared strings and the number formats of one workbook."""

    def __init__(self, archive: Archive, parts: Iterable[tuple[str, str]], *, is_1904: bool) -> None:
        self._epoch = datetime(1904, 1, 1) if is_1904 else datetime(1899, 12, 30)  # noqa: DTZ001 - sheets have no zones
        self._strings: list[str] = []
        self._formats: list[str] = []
        for kind, part in parts:
            if kind == "sharedStrings":
                self._strings += [_string(item) for item in archive.xml(part)]
            elif kind == "styles":
                self._formats = _number_formats(archive.xml(part))

    def rows(self, sheet: bytes) -> Iterator[dict[int, str]]:
        """The rows that have cells, each with those by their columns, and a blank one where rows are left out."""
        rows: dict[int, dict[int, str]] = {}
        number = 0
        for element in parse_elements(sheet):
            if local(element) == "row":
                number = max(whole(element, "r") or 0, number + 1)
                rows[number] = self._row(element)
                element.clear()
            elif local(element) == "mergeCell":
                _reach_down(rows, attribute(element, "ref"))
        above = 0
        for number, row in rows.items():
            if number > above + 1:
                yield {}
            yield row
            above = number

    def _row(self, row: Element) -> dict[int, str]:
        cells: dict[int, str] = {}
        column = 0
        for cell in row:
            column = max(_column(attribute(cell, "r")), column + 1)
            cells[column] = self._text(cell)
        return cells

    def _text(self, cell: Element) -> str:
        value = next((part.text or "" for part in cell if local(part) == "v"), "")
        kind = attribute(cell, "t")
        try:
            match kind:
                case "inlineStr":
                    return _string(cell)
                case "s":
                    return self._strings[int(value)] if value else ""
                case "b":
                    return "TRUE" if value == "1" else "FALSE"
                case "e":
                    return ""  # an error is not content
                case "str" | "d":
                    return _unescaped(value)
                case _:
                    return self._number(float(value), whole(cell, "s") or 0) if value else ""
        except (ValueError, IndexError, OverflowError):
            return "\ufffd" if kind == "s" else value  # which string of them all is not known

    def _number(self, value: float, style: int) -> str:
        number_format = self._formats[style] if style < len(self._formats) else ""
        if number_format == _DURATION:
            minutes, seconds = divmod(round(abs(value) * 86_400), 60)
            return f"{'-' * (value < 0)}{minutes // 60}:{minutes % 60:02}:{seconds:02}"
        if number_format in (_DATE, _TIME):
            moment = self._epoch + timedelta(seconds=round(value * 86_400))
            if value < 1 or number_format == _TIME:
                return moment.time().isoformat()
            return moment.date().isoformat() if value.is_integer() else moment.isoformat(" ")
        if number_format == _PERCENT:
            return f"{value * 100:.10g}%"
        return str(int(value)) if value.is_integer() else f"{value:.15g}"


def _number_formats(styles: Element) -> list[str]:
    """For each cell style whether its numbers are dates, times of day, durations or percentages."""
    custom = {
        whole(element, "numFmtId") or 0: _LITERAL.sub("", attribute(element, "formatCode")).lower()
        for element in styles.iter()
        if local(element) == "numFmt"
    }
    styled = (style for group in styles if local(group) == "cellXfs" for style in group)
    numbers = (whole(style, "numFmtId") or 0 for style in styled)
    return [_kind(number, custom.get(number, "")) for number in numbers]


def _kind(number: int, code: str) -> str:
    """What numbers in a format of that number and of that code, without its literal parts, are."""
    if number in _BUILT_IN_DURATIONS or "[" in code:
        return _DURATION
    if number in _BUILT_IN_TIMES or (any(letter in code for letter in "hs") and not any(one in code for one in "yd")):
        return _TIME
    if number in _BUILT_IN_DATES or any(letter in code for letter in "ymdhs"):
        return _DATE
    return _PERCENT if number in _BUILT_IN_PERCENTS or "%" in code else ""


def _string(item: Element) -> str:
    """The text of a string with or without runs, without the phonetic guide of an Asian one."""
    guides = {text for guide in item.iter() if local(guide) == "rPh" for text in guide.iter()}
    return _unescaped("".join(part.text or "" for part in item.iter() if local(part) == "t" and part not in guides))


def _unescaped(text: str) -> str:
    """The text with the characters that XML has no place for, which Excel writes by their number."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def _reach_down(rows: dict[int, dict[int, str]], reference: str) -> None:
    """Say the text of a cell over several rows in each of them that has other cells."""
    if not (area := _AREA.fullmatch(reference)):
        return
    column, first, last = _column(area[1]), int(area[2]), int(area[3])
    text = rows.get(first, {}).get(column, "")
    for number in range(first + 1, min(last, max(rows)) + 1) if text else ():
        if any(rows.get(number, {}).values()):
            rows[number] = dict(sorted({**rows[number], column: text}.items()))


def _column(reference: str) -> int:
    """The number of a column from 1, 0 for no reference."""
    letters = _COLUMN.match(reference)
    number = 0
    for letter in letters.group() if letters else "":
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


FORMAT = Format(name="Excel", media_types={_MEDIA_TYPE: (".xlsx", ".xlsm")}, recognise=recognise, read=read)
