"""By which rules a PDF page becomes text and images, whichever library reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import regex

from services.chassis.kernel.text import is_plain
from services.embeddings.adapters.extractors.format import Sample, corrupt
from services.embeddings.adapters.extractors.limits import whatever_breaks
from services.embeddings.domain.document import TENTHS, Page, PageFault, PageLayout, Rect, Span
from services.embeddings.domain.placed_text import PlacedText, placed_text, with_text
from services.embeddings.domain.running_lines import RunningLines

MEDIA_TYPES = {"application/pdf": (".pdf",)}
RENDER_DPI = 200
POINTS_PER_INCH = 72
UNIT = "pt"
UNDECODABLE = "it cannot be decoded"

# What stands for a glyph of no known meaning: the sign for that, private and unassigned characters, control characters.
_UNKNOWN = "\ufffd"
_UNREADABLE = regex.compile(r"[\ufffd\p{Co}\p{Cn}[\p{Cc}--\s]]", regex.V1)
_UNREADABLE_WORD = regex.compile(rf"\S*{_UNREADABLE.pattern}\S*", regex.V1)
_UNREADABLE_SHARE = 0.2
_UNREADABLE_SHARE_IN_WORDS = 0.05
_FEW_UNREADABLE = 2
_MAX_APPEARANCES = 3
_MIN_IMAGE_POINTS = 20.0
_HEADER_WITHIN = 1024
# So many images on a page that nobody can tell which belong together are one.
_MAX_PIECES = 200


def recognise(sample: Sample) -> str | None:
    """A PDF says so within its first kilobyte, where readers have always looked for it."""
    return "application/pdf" if b"%PDF-" in sample.head[:_HEADER_WITHIN] else None


def read_pages(count: int, read: Callable[[int], Page]) -> Iterator[Page]:
    """The pages by index. One that cannot be read is empty and says so.

    Raises:
        ExtractionError: ``CORRUPT`` when the document is damaged and nothing of it can be read.
    """
    is_damaged, is_blank = count == 0, True
    running = RunningLines()
    for index in range(count):
        page = Page(index + 1, "", fault=PageFault.UNREADABLE)
        with whatever_breaks():
            page = read(index)
        is_damaged = is_damaged or page.fault is PageFault.UNREADABLE
        is_blank = is_blank and not (page.text.strip() or page.images)
        height = page.layout.height if page.layout else 0
        yield with_text(page, running.left_out_of(placed_text(page), index, height))
    if is_blank and is_damaged:
        raise corrupt("the PDF is damaged: no page of it can be read")


def layout_of(size: tuple[float, float], spans: Iterable[Span], images: tuple[Rect, ...] = ()) -> PageLayout:
    """The layout of a page of that size in points. What stands beyond its border is cut off there, or left out."""
    right, bottom = (round(length * TENTHS) for length in size)
    shown = []
    for span in spans:
        x0, y0, x1, y1 = span.rect
        if x0 < 0 or y0 < 0 or x1 > right or y1 > bottom:
            rect = Rect(max(x0, 0), max(y0, 0), min(x1, right), min(y1, bottom))
            if rect.x0 < rect.x1 and rect.y0 < rect.y1:
                shown.append(span._replace(rect=rect))
        else:
            shown.append(span)
    return PageLayout(right, bottom, UNIT, tuple(shown), images)


def is_garbled(text: str) -> bool:
    """Whether a fifth of the characters are unknown, or one in twenty of those that do not stand alone as bullets do.

    The font does not say then what its glyphs mean.
    """
    if is_plain(text) and _UNKNOWN not in text:
        return False
    unknown = len(_UNREADABLE.findall(text))
    words = text.split()
    characters = sum(map(len, words))
    unknown_in_words = sum(len(_UNREADABLE.findall(word)) for word in words if len(word) > 1)
    few = max(_FEW_UNREADABLE, _UNREADABLE_SHARE_IN_WORDS * characters)
    return unknown > _UNREADABLE_SHARE * characters or unknown_in_words > few


def without_garbled_words(placed: PlacedText) -> PlacedText:
    """The words whose characters are all known."""
    return placed.without(match.span() for match in _UNREADABLE_WORD.finditer(placed.text))


class Furniture:
    """Knows the images of a document that are none of its content: small ones, and ones on page after page."""

    def __init__(self) -> None:
        self._appearances: Counter[str] = Counter()

    def includes(self, key: str, *, width: float, height: float) -> bool:
        """Count another page with the image; say whether it is under 7 mm (in points), or has been on three before."""
        self._appearances[key] += 1
        return min(width, height) < _MIN_IMAGE_POINTS or self._appearances[key] > _MAX_APPEARANCES


def touching(rects: Sequence[tuple[float, float, float, float]]) -> list[list[int]]:
    """The indexes of rectangles that touch, in groups: programs cut pictures into strips."""
    if len(rects) > _MAX_PIECES:
        return [list(range(len(rects)))]
    groups: list[list[int]] = []
    for index, rect in enumerate(rects):
        touched = [group for group in groups if any(_near(rect, rects[other]) for other in group)]
        groups = [group for group in groups if group not in touched]
        groups.append([*(other for group in touched for other in group), index])
    return groups


def _near(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] - 1 < other[2] and other[0] - 1 < one[2] and one[1] - 1 < other[3] and other[1] - 1 < one[3]
