"""Tables as text in which a row is a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

# A table up to this long is in one chunk as a rule, and its header row with it. In a longer one each row says the
# names of its columns, since the header is far away.
_MAX_WITHOUT_NAMES = 700
_NUMBER = re.compile(r"[-+(]?[\d.,:/%€$\s-]+\)?")


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """The rows as lines of cells, without the empty ones.

    ``a | b`` for a short table or one without a header row; ``A: a | B: b`` for a long one whose header is A, B.
    """
    cleaned = [[" ".join(cell.split()) for cell in row] for row in rows]
    cleaned = [row for row in cleaned if any(row)]
    lines = [" | ".join(cell for cell in row if cell) for row in cleaned]
    if cleaned and _is_header(cleaned[0]) and sum(map(len, lines)) > _MAX_WITHOUT_NAMES:
        names = cleaned[0]
        lines[1:] = [
            " | ".join(
                f"{names[n]}: {cell}" if n < len(names) and names[n] else cell for n, cell in enumerate(row) if cell
            )
            for row in cleaned[1:]
        ]
    return "\n".join(lines)


def tables_text(rows: Iterable[Sequence[str]]) -> str:
    """The rows of a sheet: blank ones part its tables."""
    tables = (list(table) for is_blank, table in groupby(rows, key=lambda row: not any(row)) if not is_blank)
    return "\n\n".join(map(table_text, tables))


def _is_header(row: Sequence[str]) -> bool:
    names = [cell for cell in row if cell]
    return len(names) > 1 and len(set(names)) == len(names) and not any(_NUMBER.fullmatch(name) for name in names)
