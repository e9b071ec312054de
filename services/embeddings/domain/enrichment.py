"""What the images of a page show becomes part of the page's text, before the text is cut into chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from services.chassis.kernel.text import sanitise
from services.embeddings.domain.document import Page


def enrich(page: Page, descriptions: Sequence[str]) -> Page:
    """The page with a line ``[Imagen: ...]`` after its text for each description, in order.

    A description is one line, whatever line ends it came with; an empty one leaves nothing. What failed to be
    described has no description: an error's message must never come in here.
    """
    lines = (" ".join(sanitise(description).split()) for description in descriptions)
    texts = [page.text, *(f"[Imagen: {line}]" for line in lines if line)]
    return replace(page, text="\n".join(text for text in texts if text.strip()))
