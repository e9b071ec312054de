"""Comma-, semicolon- and tab-separated values: a table. It has no pages."""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from itertools import islice

from services.embeddings.adapters.extractors.encoding import decode
from services.embeddings.adapters.extractors.format import Format, Source
from services.embeddings.adapters.extractors.tables import tables_text
from services.embeddings.domain.document import Page

_DELIMITERS = "\t;|,"  # a comma may also be in the numbers
_SAMPLE_ROWS = 20
_END = "\0end"
_DECLARED = re.compile(rf"sep=([{_DELIMITERS}])(?:\r\n?|\n)")


def read(source: Source) -> Iterator[Page]:
    """The rows, under the delimiter that the file declares (Excel) or that most of the first rows have evenly."""
    text = decode(source.path.read_bytes(), declared=source.charset)
    csv.field_size_limit(sys.maxsize)  # the limits of the document hold
    if declared := _DECLARED.match(text):
        rows = _rows(text[declared.end() :], declared[1])
    else:
        rows = _rows(text, max(_DELIMITERS, key=lambda delimiter: _evenness(text, delimiter)))
    yield Page(None, tables_text(rows))


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """The rows. A quote that nothing closes is a sign like any other, and does not make one cell of all the rest."""
    lines = [*StringIO(text, newline=""), _END]
    rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    begun = 0
    for row in rows:
        if row and row[-1].endswith(_END):
            if rows.line_num > begun + 1:
                yield from csv.reader([lines[begun]], delimiter=delimiter, quoting=csv.QUOTE_NONE)
                yield from csv.reader(lines[begun + 1 : -1], delimiter=delimiter, skipinitialspace=True)
            return
        yield row
        begun = rows.line_num


def _evenness(text: str, delimiter: str) -> int:
    """How many of the first rows have the same number of cells, which is more than one."""
    widths = Counter(len(row) for row in islice(_rows(text, delimiter), _SAMPLE_ROWS) if row)
    return max((count for width, count in widths.items() if width > 1), default=0)


FORMAT = Format(
    name="CSV",
    media_types={"text/csv": (".csv",), "text/tab-separated-values": (".tsv", ".tab")},
    recognise=lambda _: None,
    read=read,
    is_text=True,
)
