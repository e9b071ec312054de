"""Tables as text in which a row is a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

# A table up to this long is in one chunk as a rule, and its header row with it. In a longer one each row says the
# names of its columns, since the header is far away.
_MAX_WITHOUT_NAMES = 700
_MAX_TITLES = 3
_NUMBER = re.compile(r"[-+(]?[\d.,:/%€$\s-]+\)?")
_PERIOD = re.compile(r"(?:\d{1,2}[-/.])*(?:19|20)\d\d(?:[-/.]\d{1,2})*")


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """The rows as lines of cells, without the empty ones.

    ``a | b`` for a short table or one without a header row; ``A: a | B: b`` for a long one whose header is A, B. Up to
    three rows of one cell above the header are titles.
    """
    cleaned = [[" ".join(cell.split()) for cell in row] for row in rows]
    cleaned = [row for row in cleaned if any(row)]
    lines = [" | ".join(cell for cell in row if cell) for row in cleaned]
    first = next((at for at, row in enumerate(cleaned) if _width(row) > 1), 0)
    is_long = first <= _MAX_TITLES and sum(map(len, lines)) > _MAX_WITHOUT_NAMES
    if is_long and _is_header(cleaned[first], below=cleaned[first + 1 :]):
        names = cleaned[first]
        lines[first + 1 :] = [
            " | ".join(
                f"{names[n]}: {cell}" if n < len(names) and names[n] else cell for n, cell in enumerate(row) if cell
            )
            for row in cleaned[first + 1 :]
        ]
    return "\n".join(lines)


def cell_above(rows: Sequence[Sequence[str]]) -> str:
    """What stands in the row above where the next cell of the last row comes: a high cell reaches down there."""
    above, column = rows[-2] if len(rows) > 1 else (), len(rows[-1])
    return above[column] if column < len(above) else ""


def tables_text(rows: Iterable[Sequence[str]]) -> str:
    """The rows of a sheet: blank ones part its tables."""
    tables = (list(table) for is_blank, table in groupby(rows, key=lambda row: not any(row)) if not is_blank)
    return "\n\n".join(map(table_text, tables))


def _width(row: Sequence[str]) -> int:
    return sum(map(bool, row))


def _is_header(row: Sequence[str], *, below: Sequence[Sequence[str]]) -> bool:
    """Whether the cells name columns: there are two at least, and the numbers are years or dates over other things."""
    return len({*row} - {""}) > 1 and not any(
        _NUMBER.fullmatch(name)
        and (not _PERIOD.fullmatch(name) or any(_PERIOD.fullmatch(other[at]) for other in below if at < len(other)))
        for at, name in enumerate(row)
    )
