"""Documents that are a flow of paragraphs, tables and images rather than pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from services.embeddings.domain.document import Page, PageImage


def flow_pages(flow: Iterable[str | PageImage]) -> Iterator[Page]:
    """Pages without numbers, each ending where an image stands, so that its description follows the text before it."""
    paragraphs: list[str] = []
    for piece in flow:
        if isinstance(piece, str):
            paragraphs.append(piece)
        else:
            yield Page(None, join_paragraphs(paragraphs), (piece,))
            paragraphs = []
    if paragraphs:
        yield Page(None, join_paragraphs(paragraphs))


def flow_page(number: int, flow: Iterable[str | PageImage]) -> Page:
    """One numbered page with all the text and the distinct images."""
    pieces = list(flow)
    images = {piece.digest: piece for piece in pieces if isinstance(piece, PageImage)}
    text = join_paragraphs(piece for piece in pieces if isinstance(piece, str))
    return Page(number, text, tuple(images.values()))


def join_paragraphs(paragraphs: Iterable[str]) -> str:
    """The paragraphs that have text, parted by blank lines."""
    return "\n\n".join(text for text in map(str.strip, paragraphs) if text)
