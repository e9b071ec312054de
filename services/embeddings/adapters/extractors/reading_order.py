"""Puts the pieces of a page into the order in which a person reads them: bands downwards, columns one after another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

from services.embeddings.domain.placed_text import PlacedText

# A gutter parts two columns of prose: this wide at least, with lines this long on both sides. Narrower or shorter
# ones are the space between words or between the cells of a table, whose rows must stay together.
_MIN_GUTTER = 8.0
_MIN_COLUMN_LINES = 3
_MIN_COLUMN_CHARACTERS = 14
_MAX_SPACE_IN_COLUMNS = 2.5
# The time grows with the square of their number: a page with more keeps the order of its content.
_MAX_BOXES = 3000


@dataclass(slots=True)
class Box:
    """A piece of text and where it stands, in points, with y growing downwards. Its own lines are in order.

    Where it stands here is for the reading order only: the spans of ``placed`` say where that is on the page.
    """

    x0: float
    y0: float
    x1: float
    y1: float
    placed: PlacedText
    text: str = field(init=False)
    lines: int = field(init=False)
    line_height: float = field(init=False)

    def __post_init__(self) -> None:
        self.text = self.placed.text
        self.lines = self.text.count("\n") + 1
        self.line_height = (self.y1 - self.y0) / self.lines


def upright(direction: tuple[int, int], corners: tuple[float, float, float, float], placed: PlacedText) -> Box:
    """The box as it stands when the page is turned so that text that runs in that direction runs to the right."""
    x0, y0, x1, y1 = corners
    match direction:
        case (0, -1):
            return Box(-y1, x0, -y0, x1, placed)
        case (0, 1):
            return Box(y0, -x1, y1, -x0, placed)
        case (-1, 0):
            return Box(-x1, -y1, -x0, -y0, placed)
        case _:
            return Box(x0, y0, x1, y1, placed)


def is_drawn_again(boxes: Iterable[Box]) -> bool:
    """Whether any two stand mostly upon one another and have a word in common."""
    above: list[Box] = []
    ordered = sorted(boxes, key=lambda box: box.y0)
    for box in ordered[:_MAX_BOXES]:
        above = [other for other in above if other.y1 > box.y0]
        if any(_is_upon(box, other) for other in above):
            return True
        above.append(box)
    return False


def _is_upon(one: Box, other: Box) -> bool:
    across = min(one.x1, other.x1) - max(one.x0, other.x0)
    down = min(one.y1, other.y1) - max(one.y0, other.y0)
    return (
        2 * across > min(one.x1 - one.x0, other.x1 - other.x0)
        and 2 * down > min(one.line_height, other.line_height)
        and not set(one.text.split()).isdisjoint(other.text.split())
    )


def page_text(boxes: Iterable[tuple[tuple[int, int], Box]]) -> PlacedText:
    """The text of upright boxes by direction: each direction in reading order, the one with most text first.

    Words parted at the end of a line are joined.
    """
    directions: defaultdict[tuple[int, int], list[Box]] = defaultdict(list)
    for direction, box in boxes:
        directions[direction].append(box)
    ordered = sorted(directions.values(), key=lambda group: -sum(len(box.text) for box in group))
    parts = [part for group in ordered for part in (PlacedText("\n\n"), in_reading_order(group))]
    return PlacedText.joined(parts[1:]).with_whole_words()


def in_reading_order(boxes: Sequence[Box]) -> PlacedText:
    """The text of all boxes in reading order: a line for each row, a blank line where the page leaves space.

    Boxes side by side are one row, parted by a tab where there is space between them, unless they are columns of prose.
    """
    rows = list(_rows(boxes) if 1 < len(boxes) <= _MAX_BOXES else boxes)
    parts = [row.placed for row in rows[:1]]
    for above, below in pairwise(rows):
        gap = below.y0 - above.y1
        near = -above.line_height < gap <= 0.6 * min(above.line_height, below.line_height)
        parts += [PlacedText("\n" if near else "\n\n"), below.placed]
    return PlacedText.joined(parts)


def _rows(boxes: Sequence[Box]) -> Iterator[Box]:
    for region in _regions(_bands(boxes)):
        gutter = _gutter(region)
        if gutter is not None:
            yield from _rows([box for box in region if box.x0 < gutter])
            yield from _rows([box for box in region if box.x0 >= gutter])
        else:
            for band in _bands(region):
                yield from _row(band)


def _row(band: list[Box]) -> Iterator[Box]:
    """One row of a band when all its boxes are single lines; else its parts from left to right."""
    if len(band) == 1:
        yield from band
        return
    ordered = sorted(band, key=lambda box: box.x0)
    if all(box.lines == 1 for box in band):
        others = ((PlacedText(_space(left, right)), right.placed) for left, right in pairwise(ordered))
        yield Box(
            ordered[0].x0,
            min(box.y0 for box in band),
            max(box.x1 for box in band),
            max(box.y1 for box in band),
            PlacedText.joined([ordered[0].placed, *chain.from_iterable(others)]),
        )
        return
    gaps = _gaps(band)
    if gaps:
        _, right = gaps[0]
        yield from _rows([box for box in band if box.x0 < right])
        yield from _rows([box for box in band if box.x0 >= right])
    else:
        yield from sorted(band, key=lambda box: box.y0)


def _space(left: Box, right: Box) -> str:
    return " " if right.x0 - left.x1 < right.line_height else "\t"


def _bands(boxes: Sequence[Box]) -> list[list[Box]]:
    """The boxes in groups that no horizontal line parts, from the top."""
    bands: list[list[Box]] = []
    bottom = 0.0
    for box in sorted(boxes, key=lambda box: box.y0):
        overlap = bottom - box.y0
        if bands and overlap > 0.5 * min(box.line_height, bands[-1][-1].line_height):
            bands[-1].append(box)
            bottom = max(bottom, box.y1)
        else:
            bands.append([box])
            bottom = box.y1
    return bands


def _regions(bands: list[list[Box]]) -> Iterator[list[Box]]:
    """Consecutive bands that share a gutter, or that have none, as one.

    Columns end where the page leaves more than a paragraph's space: what stands beyond is a header, a footer, or
    columns of their own.
    """
    region: list[Box] = []
    covered: list[tuple[float, float]] = []
    has_gutter = False
    for band in bands:
        covered_by_band = _covered([(box.x0, box.x1) for box in band])
        covered_together = _covered(covered + covered_by_band)
        band_has = len(covered_by_band) > 1 and _gutter(band, min_lines=1) is not None
        together_has = len(covered_together) > 1 and _gutter([*region, *band], min_lines=1) is not None
        space = min(box.y0 for box in band) - max((box.y1 for box in region), default=0.0)
        is_near = space <= _MAX_SPACE_IN_COLUMNS * max(box.line_height for box in band)
        if not region or (together_has and is_near) or not (together_has or has_gutter or band_has):
            region += band
            covered, has_gutter = covered_together, together_has
        else:
            yield region
            region, covered, has_gutter = [*band], covered_by_band, band_has
    if region:
        yield region


def _covered(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The spans from left to right, as one where no gutter fits between them."""
    covered: list[tuple[float, float]] = []
    for left, right in sorted(spans):
        if covered and left < covered[-1][1] + _MIN_GUTTER:
            covered[-1] = covered[-1][0], max(covered[-1][1], right)
        else:
            covered.append((left, right))
    return covered


def _gutter(boxes: Sequence[Box], *, min_lines: int = _MIN_COLUMN_LINES) -> float | None:
    """Where the right one of two columns begins, None where there are none.

    Two columns of prose are parted by any gutter. Anything else is a table, whose rows stay together, unless what
    stands left and right of the gutter is not on the same lines.
    """
    for width, right in _gaps(boxes):
        if width < _MIN_GUTTER:
            return None
        sides = [box for box in boxes if box.x0 < right], [box for box in boxes if box.x0 >= right]
        if all(_is_prose(side, min_lines) for side in sides) or _are_unrelated(*sides):
            return right
    return None


def _is_prose(side: Sequence[Box], min_lines: int) -> bool:
    """Whether long lines hold most of the characters."""
    lengths = [len(line) for box in side for line in box.text.split("\n")]
    long = [length for length in lengths if length >= _MIN_COLUMN_CHARACTERS]
    return len(long) >= min_lines and sum(long) >= 0.6 * sum(lengths)


def _are_unrelated(left: Sequence[Box], right: Sequence[Box]) -> bool:
    fewer, more = sorted((left, right), key=len)
    tops = [box.y0 for box in more if box.lines == 1]
    aligned = [box for box in fewer if box.lines == 1 and any(abs(box.y0 - top) < box.line_height / 3 for top in tops)]
    return len(fewer) > 1 and 2 * len(aligned) < len(fewer)


def _gaps(boxes: Sequence[Box]) -> list[tuple[float, float]]:
    """The widths and right ends of the strips that no box touches between left and right ones, the widest first."""
    gaps: list[tuple[float, float]] = []
    edge: float | None = None
    for box in sorted(boxes, key=lambda box: box.x0):
        if edge is not None and box.x0 > edge:
            gaps.append((box.x0 - edge, box.x0))
        edge = box.x1 if edge is None else max(edge, box.x1)
    return sorted(gaps, reverse=True)
