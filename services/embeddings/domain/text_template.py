"""Templates of Markdown texts: what has no value leaves no trace, neither a label nor an empty heading.

``{name}`` stands for a value, a list joined by commas; a line vanishes when one of its values is missing. A line with
``{name*}`` is repeated for each item of a list. A fixed heading vanishes with everything below it. There is nothing
else: no conditions, no expressions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from services.chassis.kernel.text import sanitise

_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)(\*?)\}")
_HEADING = re.compile(r"(#{1,6}) ")
_BLANK_LINES = re.compile(r"\n{3,}")


class TemplateInvalidError(ValueError):
    """The template itself is wrong."""


class ValueUnusableError(ValueError):
    """A value that the template names is not there, or has no form as text."""


@dataclass(frozen=True, slots=True)
class _Line:
    source: str
    names: tuple[str, ...]
    repeats: bool

    @classmethod
    def parse(cls, source: str) -> _Line:
        found = _PLACEHOLDER.findall(source)
        if "{" in (fixed := _PLACEHOLDER.sub("", source)) or "}" in fixed:
            raise TemplateInvalidError(f"in {source!r} a brace is not part of {{name}} or {{name*}}")
        repeats = any(star for _, star in found)
        if repeats and len(found) > 1:
            raise TemplateInvalidError(f"{source!r} is repeated for each item, so it may name nothing else")
        return cls(source, tuple(name for name, _ in found), repeats)

    @property
    def level(self) -> int | None:
        """The level of a heading, 1 the highest."""
        match = _HEADING.match(self.source)
        return len(match[1]) if match else None

    def render(self, values: Mapping[str, object]) -> str:
        """The line's text, empty where it vanishes."""
        is_block = _PLACEHOLDER.fullmatch(self.source) is not None
        texts = {name: _items(name, values, is_block) for name in self.names}
        if not all(texts.values()):
            return ""
        if self.repeats:
            ((name, items),) = texts.items()
            return "\n".join(self.source.replace(f"{{{name}*}}", item) for item in items)
        return _PLACEHOLDER.sub(lambda match: ", ".join(texts[match[1]]), self.source)


@dataclass(frozen=True, slots=True)
class TextTemplate:
    """A parsed template."""

    lines: tuple[_Line, ...]

    @classmethod
    def parse(cls, source: str) -> TextTemplate:
        """Read a template. Raises TemplateInvalidError."""
        return cls(tuple(_Line.parse(line.rstrip()) for line in source.splitlines()))

    @property
    def names(self) -> frozenset[str]:
        """The values that it needs."""
        return frozenset(name for line in self.lines for name in line.names)

    def render(self, values: Mapping[str, object]) -> str:
        """The text, empty when nothing in it has a value.

        Args:
            values: by name; None, a blank text and an empty list mean that there is none.

        Raises:
            ValueUnusableError: for a name that is not in ``values``, or a value that is no text, number, time or list.
        """
        texts = [line.render(values) for line in self.lines]
        kept = (text for position, text in enumerate(texts) if self._stays(position, texts))
        return _BLANK_LINES.sub("\n\n", "\n".join(kept)).strip()

    def _stays(self, position: int, texts: list[str]) -> bool:
        """Whether a line has something to say: a value, a heading something below it. Blank lines always stay."""
        line = self.lines[position]
        if line.level is None or line.names:
            return bool(texts[position]) or not line.names
        for below, text in zip(self.lines[position + 1 :], texts[position + 1 :], strict=True):
            if below.level is not None and below.level <= line.level:
                return False
            if text and (below.level is None or below.names):
                return True
        return False


def _items(name: str, values: Mapping[str, object], is_block: bool) -> list[str]:
    try:
        value = values[name]
    except KeyError:
        raise ValueUnusableError(f"the context has no column {name}") from None
    items = value if isinstance(value, list | tuple) else [value]
    texts = (_text(name, item, is_block) for item in items if item is not None)
    return [text for text in texts if text]


def _text(name: str, value: object, is_block: bool) -> str:
    """The value as text. White space is kept only where the value stands alone on its line."""
    match value:
        case str():
            text = sanitise(value)
            return text.strip() if is_block else " ".join(text.split())
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            short = format(value, ".15g")
            return short if float(short) == value else repr(value)
        case Decimal() if value.is_finite():
            return format(value.normalize(), "f")
        case datetime():
            return value.isoformat(sep=" ", timespec="minutes")
        case date():
            return value.isoformat()
    raise ValueUnusableError(f"the column {name} holds {value!r}, which has no form as text")
