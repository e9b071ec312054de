"""Bytes of unknown encoding to text, and whether bytes are text at all."""

from __future__ import annotations

import codecs

from charset_normalizer import from_bytes

_BYTE_ORDER_MARKS = {  # the longer first: a UTF-32 mark begins like a UTF-16 one
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\f\r\x1b"})
_DETECTION_BYTES = 256 * 1024
# Statistics need long texts: they read "Año" as Chinese and a list of a dozen Spanish words as Baltic. So a text whose
# every letter belongs to one of these languages when read as Windows-1252 is not left to them.
_WESTERN = [
    frozenset(letters + letters.upper() + "«»“”‘’„‚–—…•·°ºª€§¿¡©®™½²±\u00a0")
    for letters in ("áéíóúüñ", "àâçèéêëîïôùûüœ", "äöüß", "àèéìòù", "áàâãçéêíóôõú", "åäöéæø", "àçèéíïòóúü")
]


def is_text(head: bytes, *, expected: bool) -> bool:
    """Whether bytes look like text. Where text is ``expected`` some stray control characters are forgiven."""
    if head.startswith(tuple(_BYTE_ORDER_MARKS)) or _utf16_without_mark(head):
        return True
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return controls <= (4 + len(head) * 0.05 if expected else len(head) * 0.001)


def decode(data: bytes, *, declared: str | None = None) -> str:
    """The text of ``data``: by byte order mark, UTF-8, the declared encoding, statistics, in this order.

    Nothing is refused: what the encoding found cannot represent becomes U+FFFD.
    """
    for mark, marked in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return data.decode(marked, "replace")
    if unmarked := _utf16_without_mark(data[:4096]):
        return data.decode(unmarked, "replace")
    if not (b"\x1b$" in data[:_DETECTION_BYTES] or b"\x1b(" in data[:_DETECTION_BYTES]):  # ISO-2022 is ASCII too
        text = data.decode("utf-8", "replace")
        broken = text.count("\ufffd")
        if broken == 0 or broken * 10 < len(data) - len(text):  # a little damage does not make it another encoding
            return text
    return data.decode(_known(declared) or _detect(data), "replace")


def _known(encoding: str | None) -> str | None:
    try:
        return codecs.lookup(encoding).name if encoding else None
    except LookupError:
        return None


def _detect(data: bytes) -> str:
    sample = data[:_DETECTION_BYTES]
    beyond_ascii = {*sample.translate(None, bytes(range(128))).decode("cp1252", "replace")}
    if beyond_ascii and any(beyond_ascii <= letters for letters in _WESTERN):
        return "cp1252"
    best = from_bytes(sample).best()
    return best.encoding if best is not None else "cp1252"


def _utf16_without_mark(head: bytes) -> str | None:
    """Latin text in UTF-16 has a NUL in nearly every second byte, and none between."""
    half = len(head) // 2
    if half == 0:
        return None
    high, low = head[1::2].count(0), head[::2].count(0)
    if high >= 0.7 * half and low <= 0.05 * half:
        return "utf-16-le"
    if low >= 0.7 * half and high <= 0.05 * half:
        return "utf-16-be"
    return None
