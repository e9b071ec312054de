"""HTML pages. They have no pages in our sense."""

from __future__ import annotations

import re
from collections.abc import Iterator

from services.embeddings.adapters.extractors.flow import flow_pages
from services.embeddings.adapters.extractors.format import Format, Sample, Source
from services.embeddings.adapters.extractors.hypertext import decode_html, html_flow
from services.embeddings.domain.document import Page

_BEGINNING = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)


def recognise(sample: Sample) -> str | None:
    """Text that begins as HTML does."""
    # Markup is ASCII in every encoding but those of two bytes a character.
    head = sample.head[:4096].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")
    return "text/html" if _BEGINNING.match(head) else None


def read(source: Source) -> Iterator[Page]:
    """The text. Images of other addresses are not fetched."""
    yield from flow_pages(html_flow(decode_html(source.path.read_bytes(), declared=source.charset), source.limits))


FORMAT = Format(
    name="HTML",
    media_types={"text/html": (".html", ".htm"), "application/xhtml+xml": (".xhtml",)},
    recognise=recognise,
    read=read,
    is_text=True,
)
