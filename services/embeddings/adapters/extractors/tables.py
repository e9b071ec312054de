"""Tables as text in which a row is a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

Row = Sequence[str] | Mapping[int, str]
"""The cells of a row, or those of them that are there by their columns."""

# A table up to this long is in one chunk as a rule, and its header row with it. In a longer one each row says the
# names of its columns, since the header is far away.
_MAX_WITHOUT_NAMES = 700
_MAX_TITLES = 3
_MIN_NAMES = 2
_NUMBER = re.compile(r"[-+(]?[\d.,:/%€$\s-]+\)?")
_PERIOD = re.compile(r"(?:\d{1,2}[-/.])*(?:19|20)\d\d(?:[-/.]\d{1,2})*")


def table_text(rows: Iterable[Row]) -> str:
    """The rows as lines of cells, without the empty ones, at a cost that grows with those that are not.

    ``a | b`` for a short table or one without a header row; ``A: a | B: b`` for a long one whose header is A, B. Up to
    three rows of one cell above the header are titles.
    """
    cleaned = [row for row in map(_cleaned, rows) if row]
    lines = [" | ".join(row.values()) for row in cleaned]
    first = next((at for at, row in enumerate(cleaned) if len(row) > 1), 0)
    is_long = first <= _MAX_TITLES and sum(map(len, lines)) > _MAX_WITHOUT_NAMES
    if is_long and _is_header(cleaned[first], below=cleaned[first + 1 :]):
        names = cleaned[first]
        lines[first + 1 :] = [
            " | ".join(f"{names[n]}: {cell}" if n in names else cell for n, cell in row.items())
            for row in cleaned[first + 1 :]
        ]
    return "\n".join(lines)


def cell_above(rows: Sequence[Sequence[str]]) -> str:
    """What stands in the row above where the next cell of the last row comes: a high cell reaches down there."""
    above, column = rows[-2] if len(rows) > 1 else (), len(rows[-1])
    return above[column] if column < len(above) else ""


def tables_text(rows: Iterable[Row]) -> str:
    """The rows of a sheet: blank ones part its tables."""
    cleaned = map(_cleaned, rows)
    return "\n\n".join(table_text(table) for has_cells, table in groupby(cleaned, key=bool) if has_cells)


def _cleaned(row: Row) -> dict[int, str]:
    cells = row.items() if isinstance(row, Mapping) else enumerate(row)
    return {at: text for at, cell in cells if (text := " ".join(cell.split()))}


def _is_header(row: Mapping[int, str], *, below: Iterable[Mapping[int, str]]) -> bool:
    """Whether the cells name columns: there are two at least, and the numbers are years or dates over other things."""
    if len({*row.values()}) < _MIN_NAMES:
        return False
    of_periods = {at for other in below for at, cell in other.items() if _PERIOD.fullmatch(cell)}
    return not any(
        _NUMBER.fullmatch(name) and (at in of_periods or not _PERIOD.fullmatch(name)) for at, name in row.items()
    )
