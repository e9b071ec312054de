"""Where the text of a chunk stands on the pages of its document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.embeddings.domain.document import PageLayout, Rect


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """A chunk, and the layouts of its pages by number: those that have one. Offsets count in the document's text."""

    chunk_id: int
    position: int
    page_from: int | None
    page_to: int | None
    char_start: int
    char_end: int
    pages: Sequence[tuple[int, PageLayout]]

    def boxes(self, layout: PageLayout) -> list[Rect]:
        """The lines of a page on which the chunk has characters, whole, in the order of its text."""
        return [span.rect for span in layout.spans if span.start < self.char_end and self.char_start < span.end]
