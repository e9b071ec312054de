"""Comma-, semicolon- and tab-separated values: a table. It has no pages."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator

from services.embeddings.adapters.extractors.encoding import decode
from services.embeddings.adapters.extractors.format import Format, Source
from services.embeddings.adapters.extractors.tables import tables_text
from services.embeddings.domain.document import Page

_DELIMITERS = ",;\t|"
_SAMPLE_LINES = 20


def read(source: Source) -> Iterator[Page]:
    """The rows, under the delimiter that most of the first lines have equally often."""
    text = decode(source.path.read_bytes(), declared=source.charset)
    csv.field_size_limit(sys.maxsize)  # the limits of the document hold
    yield Page(None, tables_text(csv.reader(text.splitlines(keepends=True), delimiter=_delimiter(text))))


def _delimiter(text: str) -> str:
    lines = text.splitlines()[:_SAMPLE_LINES]

    def evenness(delimiter: str) -> tuple[int, int]:
        counts = [line.count(delimiter) for line in lines if line.strip()]
        usual = max(set(counts), key=counts.count, default=0)
        return (counts.count(usual) if usual else 0), usual

    return max(_DELIMITERS, key=evenness)


FORMAT = Format(
    name="CSV",
    media_types={"text/csv": (".csv",), "text/tab-separated-values": (".tsv", ".tab")},
    recognise=lambda _: None,
    read=read,
    is_text=True,
)
