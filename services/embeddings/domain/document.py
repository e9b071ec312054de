"""A document as pages of text and images, whatever format it came in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple, Self


@dataclass(frozen=True, slots=True)
class PageImage:
    """An image that stands on a page, already decoded, bounded in size and encoded again by the extractor.

    Attributes:
        digest: SHA-256 of ``data`` in hexadecimal; equal images have equal digests.
        media_type: ``image/png`` or ``image/jpeg``.
        data: the encoded image.
        width: pixels.
        height: pixels.
        fault: why the image could not be decoded; it has no data and no size then.
    """

    digest: str
    media_type: str
    data: bytes = field(repr=False)
    width: int
    height: int
    fault: str | None = None

    @classmethod
    def undecodable(cls, key: bytes, what: str) -> Self:
        """An image that stands there and cannot be decoded: ``key`` is the same for equal ones, ``what`` says why."""
        return cls(sha256(key).hexdigest(), "image/png", b"", 0, 0, f"IMAGE_UNREADABLE: {what}")


class PageFault(StrEnum):
    """Why a page lacks text that a reader of it would see."""

    GARBLED = "GARBLED"
    """Many of its characters are not those that it shows: its other words are here, and the page as an image."""
    UNREADABLE = "UNREADABLE"
    """It is damaged; nothing of it is here."""


class PageKind(StrEnum):
    """What a page is, by where its text comes from."""

    TEXT = "text"
    """It has text of its own; what its images show may stand beside it."""
    OCR = "ocr"
    """A picture, whose writing was read."""
    DESCRIBED = "described"
    """A picture, which a model described."""
    EMPTY = "empty"
    """Nothing is on it."""
    GARBLED = "garbled"
    """Its characters are not those that it shows; it was read as a picture."""
    UNREADABLE = "unreadable"
    """Something is on it, perhaps only a picture without writing, and nothing of that could be read."""


_MIN_CHARACTERS = 20


def is_nearly_empty(text: str) -> bool:
    """Whether a page has so little text that what it shows is elsewhere: in its images, if it has any."""
    words = text.split(None, _MIN_CHARACTERS)
    return len(words) <= _MIN_CHARACTERS and sum(map(len, words)) < _MIN_CHARACTERS


TENTHS = 10
"""Lengths on a page are whole tenths of its unit."""


class Rect(NamedTuple):
    """A rectangle: left, top, right and bottom from the left upper corner of what it stands on, in tenths of a unit."""

    x0: int
    y0: int
    x1: int
    y1: int


class Span(NamedTuple):
    """The characters from ``start`` to ``end`` of a text, and the rectangle that they fill: a line or a part of one."""

    start: int
    end: int
    rect: Rect

    def moved(self, offset: int) -> Span:
        """The same characters in a text that has so many more before it."""
        return Span(self.start + offset, self.end + offset, self.rect)


@dataclass(frozen=True, slots=True)
class PageLayout:
    """Where the text and the images of a page stand on it, as it is shown.

    Attributes:
        width: in tenths of the unit, as every length.
        height: the same.
        unit: ``pt`` (a point, 1/72 inch) or ``px`` (a pixel of the image that the page is).
        spans: where the page's text stands, in its order.
        images: where each of the page's images stands, in their order.
    """

    width: int
    height: int
    unit: str
    spans: tuple[Span, ...] = ()
    images: tuple[Rect, ...] = ()

    @property
    def whole(self) -> Rect:
        """All of the page."""
        return Rect(0, 0, self.width, self.height)


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its text in reading order (already sanitised) and its images in order of appearance.

    ``number`` is 1-based, and None in a format that has no pages. ``layout`` is None where a format leaves to the
    program that shows it where things stand; two pages that say the same are equal whatever it is.
    """

    number: int | None
    text: str
    images: tuple[PageImage, ...] = ()
    fault: PageFault | None = None
    layout: PageLayout | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ExtractedDocument:
    """What an extractor found. ``media_type`` is what the bytes are, not what the sender said."""

    media_type: str
    pages: tuple[Page, ...]

    @property
    def page_count(self) -> int | None:
        """The number of pages, None where the format has none."""
        numbers = [page.number for page in self.pages if page.number is not None]
        return max(numbers) if numbers else None
