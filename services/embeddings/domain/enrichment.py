"""What the images of a page show becomes part of the page's text, before the text is cut into chunks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from services.chassis.kernel.text import sanitise
from services.embeddings.domain.document import (
    TENTHS,
    Page,
    PageFault,
    PageImage,
    PageKind,
    Rect,
    Span,
    is_nearly_empty,
)
from services.embeddings.domain.placed_text import PlacedText, placed_text
from services.embeddings.domain.running_lines import RunningLines

_OPENING = "[Imagen: "
_WORD = re.compile(r"(\S+)\s*")
_LETTERS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ImageDescription:
    """What an image shows, empty where there is nothing to say.

    Attributes:
        text: in words.
        error: why this image could not be described; its text is empty then, and the page keeps its own.
        spans: where the text stands in the image, in tenths of its pixels; none where that is not known.
    """

    text: str
    error: str | None = None
    spans: tuple[Span, ...] = ()


def enriched(pages: Iterable[Page], descriptions: Mapping[str, ImageDescription]) -> Iterator[Page]:
    """The pages with what their images show, by digest, without the running lines of pages that are each an image."""
    running = RunningLines()
    for index, page in enumerate(pages):
        described = [descriptions[image.digest] for image in page.images]
        if _is_image(page):
            height = page.images[0].height * TENTHS
            placed = running.left_out_of(PlacedText(described[0].text, described[0].spans), index, height)
            described = [replace(described[0], text=placed.text, spans=placed.spans)]
        yield enrich(page, described)


def _is_image(page: Page) -> bool:
    return page.layout is not None and page.layout.images == (page.layout.whole,)


def enrich(page: Page, descriptions: Sequence[ImageDescription]) -> Page:
    """The page with a line ``[Imagen: ...]`` after its text for the description of each of its images, in order.

    A description is one line, whatever line ends it came with; an empty one leaves nothing. What failed to be
    described has no description: an error's message must never come in here. Where an image shows the whole page, the
    words of its text that the description has are not said twice.
    """
    own = placed_text(page)
    if _is_image(page):
        own = _without_words_of(own, descriptions[0].text)
    text = own.text if own.text.strip() else ""
    spans = list(own.spans) if text else []
    for index, description in enumerate(descriptions):
        line = " ".join(sanitise(description.text).split())
        if line:
            text += ("\n" if text else "") + _OPENING
            if page.layout:
                spans += _placed(line, description, page.images[index], page.layout.images[index], len(text))
            text += f"{line}]"
    return replace(page, text=text, layout=page.layout and replace(page.layout, spans=tuple(spans)))


def _without_words_of(own: PlacedText, description: str) -> PlacedText:
    said = set(_LETTERS.findall(description.casefold()))
    words = (match for match in _WORD.finditer(own.text) if said.issuperset(_LETTERS.findall(match[1].casefold())))
    return own.without(match.span() for match in words) if said else own


def _placed(line: str, description: ImageDescription, image: PageImage, place: Rect, offset: int) -> Iterator[Span]:
    """Where the line that starts at the offset stands on the page, at worst all over the image."""
    if not description.spans or len(line) != len(description.text):
        yield Span(offset, offset + len(line), place)
        return
    across = (place.x1 - place.x0) / (image.width * TENTHS)
    down = (place.y1 - place.y0) / (image.height * TENTHS)
    for start, end, (x0, y0, x1, y1) in description.spans:
        corners = place.x0 + x0 * across, place.y0 + y0 * down, place.x0 + x1 * across, place.y0 + y1 * down
        yield Span(offset + start, offset + end, Rect(*map(round, corners)))


def kind_of(page: Page, descriptions: Sequence[ImageDescription], described: PageKind) -> PageKind:
    """What the page was before its images were described; ``described`` is what a description makes of one."""
    if page.fault is not None:
        return PageKind.GARBLED if page.fault is PageFault.GARBLED else PageKind.UNREADABLE
    if not is_nearly_empty(page.text):
        return PageKind.TEXT
    if any(description.text.strip() for description in descriptions):
        return described
    if page.text.strip():
        return PageKind.TEXT
    return PageKind.UNREADABLE if descriptions else PageKind.EMPTY
