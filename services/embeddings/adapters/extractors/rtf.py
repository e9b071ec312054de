"""Rich Text Format (RTF). It has no pages: where one ends is decided by the program that shows it."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto

from services.embeddings.adapters.extractors.flow import flow_pages
from services.embeddings.adapters.extractors.format import Format, Sample, Source
from services.embeddings.adapters.extractors.formula import LEVEL, LOWERED, RAISED, written
from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.pictures import page_image
from services.embeddings.adapters.extractors.symbols import symbol
from services.embeddings.adapters.extractors.tables import table_text
from services.embeddings.domain.document import Page, PageImage

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(?:(-?\d{1,10})\d*+)? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)
# Groups that hold no text of the document. Those that begin with \* are skipped too, but for some.
_SKIPPED = frozenset(
    b"fonttbl colortbl stylesheet info filetbl revtbl rsidtbl listtable listoverridetable list listoverride listlevel"
    b" lfolevel leveltext levelnumbers listname generator themedata datastore"
    b" colorschememapping latentstyles xmlnstbl pgdsctbl fldinst bkmkstart bkmkend objdata objclass nonshppict pntext"
    b" panose falt deleted atnid atnauthor atndate atrfstart atrfend".split()
)
_NOTES = (b"footnote", b"annotation")
_READ_AFTER_STAR = frozenset([b"shppict", b"shptxt", b"shpinst", b"fldrslt", b"moMath", b"moMathPara", *_NOTES])
_CHARACTERS = {
    b"tab": "\t", b"line": "\n", b"emdash": "—", b"endash": "–", b"lquote": "‘", b"rquote": "’", b"ldblquote": "“",
    b"rdblquote": "”", b"bullet": "•", b"emspace": " ", b"enspace": " ",
    b"super": RAISED, b"sub": LOWERED, b"nosupersub": LEVEL, b"mden": "/", b"msup": "^", b"msub": "_",
}  # fmt: skip
_SYMBOLS = {b"~": "\u00a0", b"_": "-", b"-": "", b"\\": "\\", b"{": "{", b"}": "}", b"\n": "\n", b"\r": "\n"}
_ANSI = "cp1252"
_SYMBOL = "Symbol"
_CHARSETS = {
    0: _ANSI, 77: "mac_roman", 128: "cp932", 129: "cp949", 134: "gb18030", 136: "big5", 161: "cp1253", 162: "cp1254",
    163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250",
}  # fmt: skip


def recognise(sample: Sample) -> str | None:
    """RTF says so at the start."""
    return "application/rtf" if sample.head.lstrip()[:5] == rb"{\rtf" else None


def read(source: Source) -> Iterator[Page]:
    """The text, in pages without numbers that end where an image stands."""
    yield from flow_pages(rtf_flow(source.path.read_bytes(), source.limits))


def rtf_flow(content: bytes, limits: ExtractionLimits) -> Iterator[str | PageImage]:
    """Paragraphs, tables and images in order."""
    return _Reader(limits).flow(content)


class _Target(Enum):
    TEXT = auto()
    PICTURE = auto()
    FONTS = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class _Group:
    """What a group inherits from the one around it. A ``target`` other than text is a place that text is not for."""

    target: _Target = _Target.TEXT
    encoding: str = _ANSI
    skip_after_unicode: int = 1
    after: str = ""


class _Reader:
    """Follows the control words of one document."""

    def __init__(self, limits: ExtractionLimits) -> None:
        self._limits = limits
        self._group = _Group()
        self._outer: list[_Group] = []
        self._default_encoding = _ANSI
        self._fonts: dict[int, str] = {}
        self._font = self._default_font = 0
        self._bytes = bytearray()
        self._text: list[str] = []
        self._hex: list[bytes] = []
        self._to_skip = 0
        self._is_in_table = False
        self._row: list[str] = []
        self._rows: list[list[str]] = []
        self._pieces: list[str | PageImage] = []

    def flow(self, content: bytes) -> Iterator[str | PageImage]:
        """Paragraphs, tables and images in order."""
        position, starred = 0, False
        while match := _TOKEN.match(content, position):
            position = match.end()
            word, number, code, symbol, brace, text = match.groups()
            if brace:
                self._brace(brace)
                if not self._outer:
                    break  # what follows the document is none of it
            elif symbol == b"*":
                starred = True
                continue
            elif word == b"bin":
                data_end = position + max(0, int(number or 0))
                position = data_end if data_end <= len(content) else position
            elif word:
                self._word(word, int(number) if number else None, starred=starred)
            elif code:
                self._take(bytes.fromhex(code.decode()))
            elif symbol:
                self._one_character(_SYMBOLS.get(symbol, ""))
            elif text:
                self._take(text)
            starred = False
            yield from self._ready()
        self._end_paragraph()
        self._end_table()
        yield from self._ready()

    def _ready(self) -> list[str | PageImage]:
        ready, self._pieces = self._pieces, []
        return ready

    def _brace(self, brace: bytes) -> None:
        self._decode()
        self._to_skip = 0
        if brace == b"{":
            self._outer.append(self._group)
        elif self._outer:
            ended, self._group = self._group, self._outer.pop()
            if ended.after != self._group.after:
                self._text.append(ended.after)
            if ended.target is _Target.PICTURE and self._group.target is not _Target.PICTURE:
                self._end_picture()
            elif ended.target is _Target.FONTS:
                self._use_default_font()

    def _word(self, word: bytes, number: int | None, *, starred: bool) -> None:
        if word in _SKIPPED or (starred and word not in _READ_AFTER_STAR):
            target = _Target.FONTS if word == b"fonttbl" else _Target.NOTHING
            self._group = replace(self._group, target=target)
        elif word == b"pict" and self._group.target is not _Target.NOTHING:  # there, the same image for old readers
            self._group = replace(self._group, target=_Target.PICTURE)
        elif word == b"u" and number is not None:
            character = _character(number)
            self._characters(symbol(_SYMBOL, ord(character)) if self._group.encoding == _SYMBOL else character)
            self._to_skip = self._group.skip_after_unicode
        elif word == b"uc":
            self._group = replace(self._group, skip_after_unicode=number or 0)
        elif word in (b"f", b"fcharset", b"deff", b"ansicpg", b"mac", b"pc"):
            self._set_encoding(word, number or 0)
        elif word in (b"super", b"sub") and self._group.target is _Target.TEXT:
            self._characters(_CHARACTERS[word])
            self._group = replace(self._group, after=LEVEL)
        elif word in _NOTES and self._group.target is _Target.TEXT:
            self._characters(" ")
            self._group = replace(self._group, after=" ")
        elif word in _CHARACTERS:
            self._one_character(_CHARACTERS[word])
        elif self._group.target is _Target.TEXT:
            self._structure(word)

    def _set_encoding(self, word: bytes, number: int) -> None:
        self._decode()
        if word == b"f":
            self._font = number
            if self._group.target is _Target.TEXT:
                self._group = replace(self._group, encoding=self._fonts.get(number, self._default_encoding))
        elif word == b"fcharset":
            self._fonts[self._font] = _CHARSETS.get(number, self._default_encoding)
        elif word == b"deff":
            self._default_font = number
        else:
            name = {b"mac": "mac_roman", b"pc": "cp437"}.get(word, f"cp{number}")
            with suppress(LookupError):
                self._default_encoding = codecs.lookup(name).name
                self._group = replace(self._group, encoding=self._default_encoding)

    def _use_default_font(self) -> None:
        """Take the encoding of the default font, unless it is the one that fonts have which have none of their own."""
        encoding = self._fonts.get(self._default_font, _ANSI)
        encoding = self._default_encoding if encoding == _ANSI else encoding
        self._group = replace(self._group, encoding=encoding)

    def _structure(self, word: bytes) -> None:
        match word:
            case b"plain":
                self._decode()
                self._use_default_font()
            case b"par" | b"sect" | b"page":
                if self._is_in_table:
                    self._characters("\n")
                else:
                    self._end_paragraph()
            case b"pard":
                self._is_in_table = False
            case b"intbl":
                self._is_in_table = True
            case b"cell" | b"nestcell":
                self._row.append(self._take_text())
            case b"row" | b"nestrow":
                self._rows.append(self._row)
                self._row = []

    def _take(self, data: bytes) -> None:
        """Bytes in the encoding of the group; some of them only stand in for a character that Unicode gave before."""
        skipped = min(self._to_skip, len(data))
        self._to_skip -= skipped
        if self._group.target is _Target.PICTURE:
            self._hex.append(data)
        elif self._group.target is _Target.TEXT:
            self._bytes += data[skipped:]
        elif self._group.target is _Target.FONTS and data.startswith(_SYMBOL.encode()):
            self._fonts[self._font] = _SYMBOL

    def _one_character(self, character: str) -> None:
        """A character by its name, which may stand in for one that Unicode gave before."""
        if self._to_skip:
            self._to_skip -= 1
        else:
            self._characters(character)

    def _characters(self, characters: str) -> None:
        self._decode()
        self._to_skip = 0
        if self._group.target is _Target.TEXT:
            self._text.append(characters)

    def _decode(self) -> None:
        if self._bytes:
            if self._group.encoding == _SYMBOL:
                self._text += [symbol(_SYMBOL, code) for code in self._bytes]
            else:
                self._text.append(self._bytes.decode(self._group.encoding, "replace"))
            self._bytes.clear()

    def _take_text(self) -> str:
        self._decode()
        text = "".join(self._text)
        self._text = []
        # Characters beyond the first 65,536 are given as two halves.
        return written(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _end_paragraph(self) -> None:
        text = self._take_text()
        if text.strip():
            self._end_table()
            self._pieces.append(text)

    def _end_table(self) -> None:
        if self._row:
            self._rows.append(self._row)
        if self._rows:
            self._pieces.append(table_text(self._rows))
        self._row, self._rows = [], []

    def _end_picture(self) -> None:
        digits = re.sub(rb"[^0-9a-fA-F]", b"", b"".join(self._hex))
        self._hex = []
        image = page_image(bytes.fromhex(digits[: len(digits) // 2 * 2].decode()), self._limits)
        if image is not None:
            self._end_paragraph()
            self._pieces.append(image)


def _character(number: int) -> str:
    """The character of a number, which is one of 16 bits with a sign, or as some programs write it the true one."""
    number += 0x10000 if number < 0 else 0
    return chr(number) if 0 <= number <= sys.maxunicode else "\ufffd"


FORMAT = Format(
    name="RTF",
    media_types={"application/rtf": (".rtf",), "text/rtf": ()},
    recognise=recognise,
    read=read,
)
