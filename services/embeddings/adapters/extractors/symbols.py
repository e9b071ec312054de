"""The characters of fonts that have signs where others have letters."""

from __future__ import annotations

import re

_CODE = re.compile(r"[0-9A-Fa-f]{1,4}")
_PRIVATE = 0xF000
_SYMBOL = dict(
    enumerate(
        " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼", start=0x20
    )
)
_SYMBOL |= enumerate("€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪", start=0xA0)
_SYMBOL |= enumerate("〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭", start=0xF1)
_WINGDINGS = {0x6C: "●", 0x6F: "□", 0xA7: "▪", 0xA8: "□", 0xD8: "➢", 0xDF: "←", 0xE0: "→", 0xE8: "→"}
_WINGDINGS |= {0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑", 0x4A: "☺", 0x4C: "☹", 0x28: "☎", 0x2A: "✉"}
_FONTS = {"symbol": _SYMBOL, "wingdings": _WINGDINGS}


def symbol(font: str, code: int | str) -> str:
    """The character of a code in a font, which may be of the private ones; the code's own where that is not known.

    A code as Word writes it is hexadecimal; what is none is U+FFFD.
    """
    if isinstance(code, str):
        code = int(code, 16) if _CODE.fullmatch(code) else ord("\ufffd")
    known = _FONTS.get(font.lower(), {})
    return known.get(code - _PRIVATE if code >= _PRIVATE else code) or chr(code)
