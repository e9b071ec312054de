"""Mail messages (EML): headers, text, and the names of what is attached. They have no pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from email.policy import default

from services.embeddings.adapters.extractors.encoding import decode
from services.embeddings.adapters.extractors.flow import flow_pages
from services.embeddings.adapters.extractors.format import Format, Sample, Source
from services.embeddings.adapters.extractors.hypertext import decode_html, html_flow
from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.pictures import page_image
from services.embeddings.domain.document import Page, PageImage

_SHOWN = ("Subject", "From", "To", "Cc", "Date")
_TELLING = {"from", "to", "subject", "date", "message-id", "mime-version", "received", "return-path"}
_HEADER = re.compile(rb"^([A-Za-z][A-Za-z0-9-]*):[ \t]", re.MULTILINE)
_MIN_TELLING = 3
_ATTACHED = "[Adjunto: "
_HTML = ("text/html", "text/x-amp-html", "text/watch-html")
_BLANK_LINE = re.compile(r"\n\s*\n")
_WORD = re.compile(r"[^\W_]+")
_ADDRESS = re.compile(r"\b(?:\w+://|mailto:|tel:)\S+|\[(?:cid|image):[^\]\n]*\]")
_EVENT = re.compile(r"^(SUMMARY|LOCATION|DTSTART|DTEND|DESCRIPTION)[^:\r\n]*:([^\r\n]*)", re.MULTILINE)


def recognise(sample: Sample) -> str | None:
    """Headers, three at least of those that every mail has, before the first blank line."""
    block = re.split(rb"\r?\n\r?\n", sample.head, maxsplit=1)[0]
    begins = _HEADER.match(block)
    names = {name.lower().decode() for name in _HEADER.findall(block)}
    return "message/rfc822" if begins and len(names & _TELLING) >= _MIN_TELLING else None


def read(source: Source) -> Iterator[Page]:
    """The message and those in it, in pages without numbers that end where an image stands."""
    yield from flow_pages(mail_flow(source.path.read_bytes(), source.limits))


def mail_flow(content: bytes, limits: ExtractionLimits) -> Iterator[str | PageImage]:
    """The pieces of a message, or of a web page archived as one (MHT)."""
    head, end, body = content.partition(b"\r\n\r\n" if b"\r\n" in content[:1000] else b"\n\n")
    yield from _message(message_from_bytes(decode(head).encode() + end + body, policy=default), limits)


def _message(message: Message, limits: ExtractionLimits) -> Iterator[str | PageImage]:
    yield "\n".join(f"{name}: {message[name]}" for name in _SHOWN if message[name])
    yield from _part(message, limits)


def _part(part: Message, limits: ExtractionLimits) -> Iterator[str | PageImage]:
    kind = part.get_content_type()
    if kind == "multipart/alternative" and part.is_multipart():
        yield from _alternative(part, limits)
    elif kind == "message/delivery-status":
        yield "\n".join(f"{name}: {value}" for inner in _parts(part) for name, value in inner.items())
    elif part.is_multipart():
        read_inner = _message if kind == "message/rfc822" else _part
        for inner in _parts(part):
            yield from read_inner(inner, limits)
    else:
        if name := part.get_filename():
            yield f"{_ATTACHED}{name}]"
        yield from _content(part, kind, limits)


def _alternative(part: Message, limits: ExtractionLimits) -> Iterator[str | PageImage]:
    """The version of a message with the most words, the first of equal ones; then, of the others, what is attached and
    each paragraph that has a word which that one lacks."""
    versions = [list(_part(inner, limits)) for inner in _parts(part)]
    fullest = max(versions, key=lambda one: sum(len(_words(piece)) for piece in one), default=[])
    known = {word for piece in fullest for word in _words(piece)}
    yield from fullest
    for piece in (piece for one in versions if one is not fullest for piece in one):
        if not isinstance(piece, str) or piece.startswith(_ATTACHED):
            yield from (piece,) if piece not in fullest else ()
        else:
            yield from (text for text in _BLANK_LINE.split(piece) if not known.issuperset(_words(text)))


def _words(piece: str | PageImage) -> list[str]:
    """The words of a text, without addresses: in HTML they stand behind the words of a link."""
    if not isinstance(piece, str) or piece.startswith(_ATTACHED):
        return []
    return _WORD.findall(_ADDRESS.sub("", piece).casefold())


def _parts(message: Message) -> list[Message]:
    parts = message.get_payload()
    return [part for part in parts if isinstance(part, Message)] if isinstance(parts, list) else []


def _content(part: Message, kind: str, limits: ExtractionLimits) -> Iterator[str | PageImage]:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return
    if kind in _HTML:
        yield from html_flow(decode_html(content, declared=part.get_content_charset()), limits)
    elif kind == "text/calendar":
        yield _event(decode(content, declared=part.get_content_charset()))
    elif kind.startswith(("text/", "multipart/")):  # several parts without the border that was declared
        yield decode(content, declared=part.get_content_charset())
    elif kind.startswith("image/"):
        image = page_image(content, limits)
        if image is not None:
            yield image


def _event(calendar: str) -> str:
    """What an invitation is to, where and when."""
    _, _, event = re.sub(r"\r?\n[ \t]", "", calendar).partition("BEGIN:VEVENT")
    lines = (f"{name}: {value}" for name, value in _EVENT.findall(event))
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] in "nN" else match[1], "\n".join(lines))


FORMAT = Format(name="mail", media_types={"message/rfc822": (".eml",)}, recognise=recognise, read=read, is_text=True)
