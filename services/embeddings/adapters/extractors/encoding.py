"""Bytes of unknown encoding to text, and whether bytes are text at all."""

from __future__ import annotations

import codecs
from contextlib import suppress

import regex
from chardet import detect

_BYTE_ORDER_MARKS = {  # the longer first: a UTF-32 mark begins like a UTF-16 one
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\f\r\x1b"})
_DETECTION_BYTES = 200_000
_HEAD_BYTES = 4096
# What people declare, and what they write: the Windows encoding that has the same letters, and more signs.
_MEANT = {"iso8859-1": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949"}
_DECLARED_WITHOUT_THOUGHT = {"ascii", "utf-8"}
# Statistics need texts of some length. So a text whose every letter belongs to one of these languages when read as
# Windows-1252, with no sign in the middle of a word, is not left to them.
_SIGNS = "«»“”‘’„‚–—…•·°ºª€£§¿¡©®™½²±\u00a0"
_WESTERN = [
    frozenset(letters + letters.upper() + _SIGNS)
    for letters in ("áéíóúüñ", "àâçèéêëîïôùûüœ", "äöüß", "àèéìòù", "áàâãçéêíóôõú", "åäöéæø", "àçèéíïòóúü")
]
_SIGN_IN_A_WORD = regex.compile(r"\p{L}[«»“”‘„‚…•°ºª€£§¿¡©®™½²±]\p{L}")
_NO_CHARACTER = regex.compile(r"[\p{Cn}\p{Co}[\p{Cc}--[\t\n\f\r]]]", regex.V1)


def is_text(head: bytes, *, expected: bool) -> bool:
    """Whether bytes look like text. Where text is ``expected`` some stray control characters are forgiven."""
    if head.startswith(tuple(_BYTE_ORDER_MARKS)) or _wide_without_mark(head):
        return True
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return controls <= (4 + len(head) * 0.05 if expected else len(head) * 0.001)


def decode(data: bytes, *, declared: str | None = None) -> str:
    """The text of ``data``: by byte order mark, form of UTF-16 and UTF-32, UTF-8, the declared encoding, statistics.

    A declaration that the bytes contradict does not count. Nothing is refused: what the encoding found cannot represent
    becomes U+FFFD.
    """
    for mark, marked in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return data.decode(marked, "replace")
    if wide := _wide_without_mark(data):
        return data.decode(wide, "replace")
    if not (b"\x1b$" in data[:_DETECTION_BYTES] or b"\x1b(" in data[:_DETECTION_BYTES]):  # ISO-2022 is ASCII too
        text = data.decode("utf-8", "replace")
        broken = text.count("\ufffd")
        # No other encoding looks like UTF-8 by chance as often as it does not: damage does not make it another.
        if broken == 0 or broken <= sum(not character.isascii() for character in text) - broken:
            return text
    if known := _known(declared):
        with suppress(UnicodeDecodeError):
            return data.decode(known)
    return _by_statistics(data)


def _known(encoding: str | None) -> str | None:
    try:
        name = codecs.lookup(encoding).name if encoding else ""
    except LookupError:
        return None
    return None if name in _DECLARED_WITHOUT_THOUGHT else _MEANT.get(name, name)


def _by_statistics(data: bytes) -> str:
    sample = data[:_DETECTION_BYTES]
    western = sample.decode("cp1252", "replace")
    beyond_ascii = {character for character in western if not character.isascii()}
    is_western = any(beyond_ascii <= letters for letters in _WESTERN) and not _SIGN_IN_A_WORD.search(western)
    found = None if beyond_ascii and is_western else detect(sample, max_bytes=_DETECTION_BYTES)["encoding"]
    return data.decode(_known(found) or "cp1252", "replace")


def _wide_without_mark(data: bytes) -> str | None:
    """UTF-32 or UTF-16 without a mark: bytes that are no other text, and characters when read so.

    The upper bytes of UTF-16 are control characters in alphabets, and they are few; so Chinese is not told.
    """
    head = data[:_HEAD_BYTES]
    if b"\0" in head[:4]:
        for encoding in ("utf-32-le", "utf-32-be"):
            if len(data) % 4 == 0 and _reads_as(encoding, head):
                return encoding
    odd, even = head[1::2], head[::2]
    upper, encoding = min((odd, "utf-16-le"), (even, "utf-16-be"), key=lambda one: len(set(one[0])))
    controls = len(upper) - len(upper.translate(None, _CONTROLS))
    return encoding if upper and controls >= 0.7 * len(upper) and _reads_as(encoding, head) else None


def _reads_as(encoding: str, head: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return False
    return _NO_CHARACTER.search(text) is None
