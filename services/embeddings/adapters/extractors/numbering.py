"""The numbers that word processors write before paragraphs by themselves: of headings, articles and lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from xml.etree.ElementTree import Element

from services.embeddings.adapters.extractors.archive import attribute, local, whole

_PLACE = re.compile(r"%([1-9])")
_ROMAN = [(1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl")]
_ROMAN += [(10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")]
_MAX_IN_LETTERS = 1000
_MAX_DIGITS = 6


class _Level(NamedTuple):
    """How a level of a list is numbered; ``text`` has ``%2`` where the number of the second level stands.

    It begins anew after a paragraph of any higher level, or of the first ``restart`` ones.
    """

    start: int
    kind: str
    text: str
    style: str
    is_legal: bool
    restart: int | None


class Numbering:
    """Counts the numbered paragraphs of a document, which must come in its order.

    A list is an instance of a definition: the instances of one count on together, unless one says where to start, and
    may number levels of their own in other ways.
    """

    def __init__(self, numbering: Element, styles: Element) -> None:
        definitions = {attribute(one, "abstractNumId"): one for one in _children(numbering, "abstractNum")}
        self._definitions = {
            attribute(one, "numId"): _value(one, "abstractNumId") for one in _children(numbering, "num")
        }
        self._levels: dict[str, dict[int, _Level]] = {}
        self._starts: dict[tuple[str, int], int] = {}
        self._counts: dict[str, dict[int, int]] = {}
        self._styles = {attribute(one, "styleId"): one for one in _children(styles, "style")}
        for one in _children(numbering, "num"):
            key = attribute(one, "numId")
            self._levels[key] = _levels(definitions.get(self._definitions[key], Element("")))
            for changed in _children(one, "lvlOverride"):
                self._levels[key] |= _levels(changed)
                start = _number(_value(changed, "startOverride"))
                if start is not None:
                    self._starts[key, _number(attribute(changed, "ilvl")) or 0] = start

    def label(self, paragraph: Element) -> str:
        """The number as it is shown, empty for a paragraph without one and for a bullet."""
        key, depth = self._place(paragraph)
        levels = self._levels.get(key, {})
        if depth not in levels:
            return ""
        level, definition = levels[depth], self._definitions[key]
        before = self._counts.get(definition, {})
        upper = {at: before.get(at, one.start) for at, one in levels.items() if at < depth}
        deeper = {at: count for at, count in before.items() if at > depth and _goes_on(levels.get(at), depth)}
        count = self._starts.pop((key, depth), before.get(depth, level.start - 1) + 1)
        counts = self._counts[definition] = {**upper, depth: count, **deeper}

        def shown(place: re.Match[str]) -> str:
            at = int(place[1]) - 1
            kind = levels[at].kind if at in levels else "none"
            return _shown(counts.get(at, 0), "decimal" if level.is_legal else kind)

        return "" if level.kind in ("bullet", "none") else _PLACE.sub(shown, level.text)

    def _place(self, paragraph: Element) -> tuple[str, int]:
        """The key of the list that the paragraph is in and its level, by itself or by its style."""
        properties = next(_children(paragraph, "pPr"), Element(""))
        key, depth = _listed(properties)
        style, chain = _value(properties, "pStyle"), list[str]()
        while not key and style in self._styles and style not in chain:
            chain.append(style)
            found = self._styles[style]
            key, depth_of_style = _listed(next(_children(found, "pPr"), Element("")))
            depth = depth_of_style if depth is None else depth
            style = _value(found, "basedOn")
        if depth is None:
            levels = self._levels.get(key, {})
            depth = next((at for one in chain for at, level in levels.items() if level.style == one), None)
        return key, depth or 0


class _OpenLevel(NamedTuple):
    """How a level of an OpenDocument list is numbered; ``levels`` is how many of them its number shows, itself last."""

    start: int
    kind: str
    prefix: str
    suffix: str
    levels: int


class OpenNumbering:
    """Counts the numbered paragraphs of an OpenDocument text, whose lists and their items must come in its order."""

    def __init__(self, parts: Iterable[Element]) -> None:
        found = [one for part in parts for one in part.iter() if local(one) in ("list-style", "outline-style")]
        self._styles = {
            _OUTLINE if local(one) == "outline-style" else attribute(one, "name"): _open_levels(one) for one in found
        }
        self._counts: dict[str, dict[int, int]] = {_OUTLINE: {}}
        self._open: list[str] = []
        self._counting: dict[int, int] = {}
        self._item: Element | None = None

    def begin(self, listed: Element) -> None:
        """Begin a list, in another or not: a new one, or one that goes on with what another began."""
        style = attribute(listed, "style-name") or (self._open[-1] if self._open else "")
        if not self._open:
            before = attribute(listed, "continue-list") or (
                style if attribute(listed, "continue-numbering") == "true" else ""
            )
            self._counting = self._counts.get(before, {}) if before else {}
            self._counts[style] = self._counts[attribute(listed, "id")] = self._counting
        self._open.append(style)

    def end(self) -> None:
        """End the list that began last."""
        self._open.pop()

    def item(self, item: Element) -> None:
        """Begin an item, whose first paragraph has its number, or a header of a list, which has none."""
        self._item = item if local(item) == "list-item" else None

    def label(self, paragraph: Element) -> str:
        """The number as it is shown, empty for a paragraph without one and for a bullet."""
        if self._item is not None:
            start = whole(self._item, "start-value")
            self._item = None
            return self._next(self._open[-1], self._counting, len(self._open), start)
        if self._open or local(paragraph) != "h" or attribute(paragraph, "is-list-header") == "true":
            return ""
        return self._next(_OUTLINE, self._counts[_OUTLINE], whole(paragraph, "outline-level") or 1, None)

    def _next(self, style: str, counts: dict[int, int], depth: int, start: int | None) -> str:
        levels = self._styles.get(style, {})
        level = levels.get(depth, _UNNUMBERED)
        counts[depth] = counts.get(depth, level.start - 1) + 1 if start is None else start
        for deeper in [at for at in counts if at > depth]:
            del counts[deeper]
        shown = (
            _shown(counts.get(at, levels[at].start), levels[at].kind)
            for at in sorted(levels)
            if depth - level.levels < at <= depth and levels[at].kind != "none"
        )
        return "" if level.kind == "none" else f"{level.prefix}{'.'.join(shown)}{level.suffix}".strip()


_OUTLINE = "\0outline"
_UNNUMBERED = _OpenLevel(1, "none", "", "", 1)
_KINDS = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}


def _open_levels(style: Element) -> dict[int, _OpenLevel]:
    return {
        whole(one, "level") or 1: _OpenLevel(
            1 if (start := whole(one, "start-value")) is None else start,
            _KINDS.get(attribute(one, "num-format"), "none"),
            attribute(one, "num-prefix"),
            attribute(one, "num-suffix"),
            whole(one, "display-levels") or 1,
        )
        for one in style
    }


def shown_number(number: int, form: str) -> str:
    """The number of an item in a form of OpenDocument and HTML: ``1``, ``a``, ``A``, ``i`` or ``I``."""
    return _shown(number, _KINDS.get(form, "decimal"))


def _goes_on(level: _Level | None, depth: int) -> bool:
    """Whether a level counts on after a paragraph of a higher one; by itself it begins anew."""
    return level is not None and level.restart is not None and depth >= level.restart


def _levels(definition: Element) -> dict[int, _Level]:
    return {
        _number(attribute(one, "ilvl")) or 0: _Level(
            _number(_value(one, "start")) or 0,
            _value(one, "numFmt"),
            _value(one, "lvlText"),
            _value(one, "pStyle"),
            next(_children(one, "isLgl"), None) is not None,
            _number(_value(one, "lvlRestart")),
        )
        for one in _children(definition, "lvl")
    }


def _listed(properties: Element) -> tuple[str, int | None]:
    for one in _children(properties, "numPr"):
        return _value(one, "numId"), _number(_value(one, "ilvl"))
    return "", None


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None


def _children(parent: Element, name: str) -> Iterator[Element]:
    return (child for child in parent if local(child) == name)


def _value(parent: Element, name: str) -> str:
    return next((attribute(child, "val") for child in _children(parent, name)), "")


def _shown(number: int, kind: str) -> str:
    if kind == "none":
        return ""
    if not 0 < number < _MAX_IN_LETTERS:
        return f"{number:02}" if kind == "decimalZero" else str(number)
    match kind:
        case "lowerLetter" | "upperLetter":
            letters = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
        case "lowerRoman" | "upperRoman":
            letters = ""
            for worth, sign in _ROMAN:
                letters += sign * (number // worth)
                number %= worth
        case "decimalZero":
            return f"{number:02}"
        case _:
            return str(number)
    return letters.upper() if kind.startswith("upper") else letters
