"""A document as pages of text and images, whatever format it came in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class PageImage:
    """An image that stands on a page, already decoded, bounded in size and encoded again by the extractor.

    Attributes:
        digest: SHA-256 of ``data`` in hexadecimal; equal images have equal digests.
        media_type: ``image/png`` or ``image/jpeg``.
        data: the encoded image.
        width: pixels.
        height: pixels.
    """

    digest: str
    media_type: str
    data: bytes = field(repr=False)
    width: int
    height: int


class PageFault(StrEnum):
    """Why a page lacks text that a reader of it would see."""

    GARBLED = "GARBLED"
    """Many of its characters are not those that it shows: its other words are here, and the page as an image."""
    UNREADABLE = "UNREADABLE"
    """It is damaged; nothing of it is here."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its text in reading order (already sanitised) and its images in order of appearance.

    ``number`` is 1-based, and None in a format that has no pages.
    """

    number: int | None
    text: str
    images: tuple[PageImage, ...] = ()
    fault: PageFault | None = None


@dataclass(frozen=True, slots=True)
class ExtractedDocument:
    """What an extractor found. ``media_type`` is what the bytes are, not what the sender said."""

    media_type: str
    pages: tuple[Page, ...]

    @property
    def unreadable_pages(self) -> tuple[int, ...]:
        """The numbers of the pages of which nothing could be read."""
        return tuple(
            page.number for page in self.pages if page.fault is PageFault.UNREADABLE and page.number is not None
        )

    @property
    def page_count(self) -> int | None:
        """The number of pages, None where the format has none."""
        numbers = [page.number for page in self.pages if page.number is not None]
        return max(numbers) if numbers else None
