"""Formulas and raised characters on one line: ``1/2``, ``x^2``, ``√(x+1)``. No two numbers become another number."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element

from services.embeddings.adapters.extractors.archive import attribute, local

# Where in a line that is not written yet a formula begins and ends, and where characters are raised, lowered, neither.
_FORMULA, _FORMULA_END = "\x02", "\x03"
RAISED, LOWERED, LEVEL = "\x04", "\x05", "\x06"
_MARKS = [
    (re.compile(rf"(?<=\w){_FORMULA}|{_FORMULA_END}(?=\w)|(?<=\d){LEVEL}(?=\d)"), " "),
    (re.compile(rf"(?<=\d){LEVEL}?{RAISED}(?=[-+−]?\d)"), "^"),
    (re.compile(rf"(?<=\d){LEVEL}?{LOWERED}(?=\d)"), "_"),
    (re.compile(f"[{_FORMULA}{_FORMULA_END}{RAISED}{LOWERED}{LEVEL}]"), ""),
]
# How the parts of a formula are put together, and which those are in Office; MathML has them in this order.
_OFFICE = {
    "f": ("fraction", "num", "den"),
    "rad": ("root", "e", "deg"),
    "nary": ("sum", "e", "sub", "sup"),
    "sPre": ("before", "e", "sub", "sup"),
    "sSup": ("upper", "e", "sup"),
    "limUpp": ("upper", "e", "lim"),
    "sSub": ("lower", "e", "sub"),
    "limLow": ("lower", "e", "lim"),
    "sSubSup": ("lower", "e", "sub", "sup"),
}
_MATHML = {"mfrac": "fraction", "mroot": "root", "msup": "upper", "mover": "upper", "msub": "lower", "munder": "lower"}
_MATHML |= {"msubsup": "lower", "munderover": "lower"}
_LEFT_OUT = {"annotation", "annotation-xml", "mphantom", "del", "moveFrom"}
_INVISIBLE = re.compile("[\u2061-\u2064]")
_BRACKETS = r"[(\[{|][^()\[\]{}|]*[)\]}|]"
_SIMPLE = re.compile(rf"[\w.,∞]+|.?|{_BRACKETS}")
_SIGNED = re.compile(rf"[-+−]?[\w.,∞*'′]+|.?|{_BRACKETS}")


def formula_line(formula: Element) -> str:
    """A formula of Office (OMML) or of MathML, to stand in a line until that is ``written``."""
    return f"{_FORMULA}{_text(formula).strip()}{_FORMULA_END}"


def written(line: str) -> str:
    """The line without its marks: with signs and spaces only where numbers or words would run together."""
    if _MARKS[-1][0].search(line):
        for mark, sign in _MARKS:
            line = mark.sub(sign, line)
    return line


def _text(element: Element) -> str:
    name = local(element)
    if name in _LEFT_OUT or name.endswith("Pr"):
        return ""
    if name in _OFFICE:
        kind, *names = _OFFICE[name]
        found = {local(child): child for child in element}
        parts = [_text(found[part]) if part in found else "" for part in names]
        return _put_together(kind, parts, sign=_property(element, "chr") or "∫")
    if name in _MATHML:
        return _put_together(_MATHML[name], [*map(_text, element)])
    match name:
        case "r":
            return "".join(child.text or "" for child in element if local(child) == "t")
        case "semantics":
            return _row([*element][:1])
        case "mspace":
            return " "
        case "msqrt":
            return f"√{_grouped(_row(element))}"
        case "d" | "mfenced":
            opening = _property(element, "begChr", element.get("open", "("))
            closing = _property(element, "endChr", element.get("close", ")"))
            between = _property(element, "sepChr", "|" if name == "d" else element.get("separators", ",")[:1])
            return f"{opening}{between.join(filter(None, map(_text, element)))}{closing}"
        case "m" | "mtable" | "eqArr":
            return "; ".join(filter(None, map(_text, element)))
        case "mr" | "mtr" | "mlabeledtr":
            return ", ".join(map(_text, element))
        case _:
            return _INVISIBLE.sub("", " ".join((element.text or "").split())) + _row(element)


def _row(parts: Iterable[Element]) -> str:
    """What stands side by side, with a space where words or numbers would run together that are not runs of one."""
    text, before = "", ""
    for part in parts:
        piece, name = _text(part), local(part)
        if text[-1:].isalnum() and piece[:1].isalnum() and not before == name == "r":
            text += " "
        text += piece
        before = name
    return text


def _put_together(kind: str, parts: list[str], *, sign: str = "") -> str:
    first, second, third, *_ = [*parts, "", "", ""]
    match kind:
        case "fraction":
            return f"{_grouped(first, _SIGNED)}/{_grouped(second, _SIGNED)}"
        case "root":
            return f"√{second and f'[{second}]'}{_grouped(first)}"
        case "sum":
            return f"{sign}{_at('_', second)}{_at('^', third)} {first}"
        case "before":
            return f"{_at('_', second)}{_at('^', third)} {first}"
        case "upper":
            return f"{_grouped(first)}{_at('^', second)}"
        case _:
            return f"{_grouped(first)}{_at('_', second)}{_at('^', third)}"


def _at(sign: str, part: str) -> str:
    return part and f"{sign}{_grouped(part, _SIGNED)}"


def _grouped(part: str, simple: re.Pattern[str] = _SIMPLE) -> str:
    return part if simple.fullmatch(part) else f"({part})"


def _property(element: Element, name: str, usual: str = "") -> str:
    """What the properties of a part of Office's formulas say."""
    for properties in element:
        for one in properties if local(properties).endswith("Pr") else ():
            if local(one) == name:
                return attribute(one, "val")
    return usual
