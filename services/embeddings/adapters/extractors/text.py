"""Plain text and Markdown. They have no pages."""

from __future__ import annotations

from collections.abc import Iterator

from services.embeddings.adapters.extractors.encoding import decode
from services.embeddings.adapters.extractors.format import Format, Source
from services.embeddings.domain.document import Page
from services.embeddings.domain.placed_text import PlacedText


def read(source: Source) -> Iterator[Page]:
    """The whole text as one page without a number."""
    text = decode(source.path.read_bytes(), declared=source.charset)
    yield Page(None, PlacedText(text).with_whole_words().text)


FORMAT = Format(
    name="text",
    media_types={
        "text/plain": (".txt", ".text", ".log"),
        "text/markdown": (".md", ".markdown"),
    },
    recognise=lambda _: None,
    read=read,
    is_text=True,
)
