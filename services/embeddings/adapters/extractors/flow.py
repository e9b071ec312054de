"""Documents that are a flow of paragraphs, tables and images rather than pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from services.embeddings.adapters.extractors.format import corrupt
from services.embeddings.adapters.extractors.limits import whatever_breaks
from services.embeddings.domain.document import Page, PageFault, PageImage


def flow_pages(flow: Iterable[str | PageImage]) -> Iterator[Page]:
    """Pages without numbers, each ending where an image stands, so that its description follows the text before it."""
    paragraphs: list[str] = []
    for piece in flow:
        if isinstance(piece, str):
            paragraphs += [piece] if piece.strip() else []
        else:
            yield Page(None, join_paragraphs(paragraphs), (piece,))
            paragraphs = []
    if paragraphs:
        yield Page(None, join_paragraphs(paragraphs))


def numbered_pages(flows: Iterable[Iterable[str | PageImage]]) -> Iterator[Page]:
    """A page for each flow, from 1, with all its text and distinct images. One that breaks off leaves the others.

    Raises:
        ExtractionError: a limit or a password; ``CORRUPT`` when pages broke off and no other has anything.
    """
    broken, is_blank = 0, True
    for number, flow in enumerate(flows, start=1):
        page = Page(number, "", fault=PageFault.UNREADABLE)
        with whatever_breaks():
            page = _page(number, flow)
        broken += page.fault is not None
        is_blank = is_blank and not (page.text or page.images)
        yield page
    if broken and is_blank:
        raise corrupt(f"{broken} of its pages are missing or damaged, and nothing is on any other")


def _page(number: int, flow: Iterable[str | PageImage]) -> Page:
    pieces = list(flow)
    images = {piece.digest: piece for piece in pieces if isinstance(piece, PageImage)}
    text = join_paragraphs(piece for piece in pieces if isinstance(piece, str))
    return Page(number, text, tuple(images.values()))


def join_paragraphs(paragraphs: Iterable[str]) -> str:
    """The paragraphs that have text, parted by blank lines."""
    return "\n\n".join(text for text in map(str.strip, paragraphs) if text)
