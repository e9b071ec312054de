"""Plain text and Markdown. They have no pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from services.embeddings.adapters.extractors.encoding import decode
from services.embeddings.adapters.extractors.flow import flow_pages
from services.embeddings.adapters.extractors.format import Format, Source
from services.embeddings.adapters.extractors.hypertext import embedded
from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.pictures import page_image
from services.embeddings.domain.document import Page, PageImage
from services.embeddings.domain.placed_text import PlacedText

_LINE_ENDS = {ord("\v"): "\n", ord("\f"): "\n"}
# In Markdown where it stands, or by a name at the end.
_WRITTEN_OUT = re.compile(
    r"(?:!\[(?P<alternative>[^\]\n]*)\]\(|\[[^\]\n]*\]:[ ]*)?"
    r"<?(?P<address>data:image/[\w.+-]+;base64,[A-Za-z0-9+/=%]{40,})>?"
    r"(?(alternative)[^)\n]*\))"
)


def read(source: Source) -> Iterator[Page]:
    """The whole text, in pages without numbers that end where an image stands that is written out in it."""
    text = decode(source.path.read_bytes(), declared=source.charset).translate(_LINE_ENDS)
    yield from flow_pages(_flow(PlacedText(text).with_whole_words().text, source.limits))


def _flow(text: str, limits: ExtractionLimits) -> Iterator[str | PageImage]:
    position = 0
    for match in _WRITTEN_OUT.finditer(text):
        yield text[position : match.start()] + (match["alternative"] or "")
        image = page_image(embedded(match["address"]), limits)
        if image is not None:
            yield image
        position = match.end()
    yield text[position:]


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
