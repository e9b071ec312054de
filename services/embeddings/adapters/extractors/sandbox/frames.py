"""The protocol between a worker and the process that reads a document for it.

A frame is a header (the lengths of its two parts), a JSON object and raw bytes. Nothing in a frame is executed or
unpickled, and every length is checked before it is read: the document may have taken over the process that reads it.
"""

from __future__ import annotations

import asyncio
import json
from struct import Struct
from typing import IO, Any

from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.domain.document import ExtractedDocument, Page, PageFault, PageImage, PageLayout, Rect, Span
from services.embeddings.domain.errors import ExtractionError, ResourceLimitError

_HEADER = Struct("!II")
_MAX_LENGTH = 2**31 - 1


class ProtocolError(Exception):
    """The reading process sent something that the protocol does not allow, or stopped before the end."""


class FrameWriter:
    """The reading process's end. An image's bytes are sent once, however many pages it stands on."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._sent: set[str] = set()

    def started(self) -> None:
        """Say that the time of the document begins now."""
        self._write({"started": True})

    def page(self, page: Page) -> None:
        """Send a page."""
        images, blobs = [], []
        for image in page.images:
            data = b"" if image.digest in self._sent else image.data
            self._sent.add(image.digest)
            blobs.append(data)
            images.append([image.digest, image.media_type, image.width, image.height, len(data), image.fault])
        message = {"page": page.number, "text": page.text, "images": images, "fault": page.fault}
        self._write({**message, "layout": page.layout and _flat(page.layout)}, b"".join(blobs))

    def done(self, media_type: str) -> None:
        """Say that there are no more pages."""
        self._write({"done": media_type})

    def error(self, error: ExtractionError) -> None:
        """Say why there are no more pages."""
        fields = [error.code, error.message, error.where, error.remedy]
        self._write({"error": fields, "limit": error.limit if isinstance(error, ResourceLimitError) else None})

    def _write(self, message: dict[str, Any], blob: bytes = b"") -> None:
        encoded = json.dumps(message).encode()
        self._stream.write(_HEADER.pack(len(encoded), len(blob)) + encoded + blob)
        self._stream.flush()


class FrameReader:
    """The worker's end, which reads at most ``limits.output_bytes``."""

    def __init__(self, stream: asyncio.StreamReader, limits: ExtractionLimits) -> None:
        self._stream = stream
        self._limits = limits
        self._bytes = 0
        self._images: dict[str, bytes] = {}

    async def started(self) -> None:
        """Wait until the reading begins. Raises ProtocolError."""
        message, _ = await self._read()
        if message != {"started": True}:
            raise ProtocolError("the first frame is not the start")

    async def document(self) -> ExtractedDocument:
        """The document, when all of it has arrived.

        Raises:
            ExtractionError: the one that the reading process met, or too many bytes.
            ProtocolError: it stopped before the end, or did not keep to the protocol.
        """
        pages: list[Page] = []
        while True:
            message, blob = await self._read()
            match message:
                case {
                    "page": int() | None as number,
                    "text": str(text),
                    "images": [*images],
                    "fault": fault,
                    "layout": layout,
                }:
                    known = PageFault(fault) if fault in list(PageFault) else None
                    shown = tuple(self._parse_images(images, blob))
                    placed = None if layout is None else _parse_layout(layout, len(text), len(shown))
                    pages.append(Page(number, text, shown, known, placed))
                case {"done": str(media_type)}:
                    return ExtractedDocument(media_type, tuple(pages))
                case {"error": ["RESOURCE_LIMIT", str(message), _, _], "limit": str(limit)}:
                    raise ResourceLimitError(limit, message.removeprefix(f"{limit}: "))
                case {"error": [str(code), str(message), str() | None as where, str() | None as remedy]}:
                    raise ExtractionError(code, message, where=where, remedy=remedy)
                case _:
                    raise ProtocolError("a frame makes no sense")

    def _parse_images(self, images: list[Any], blob: bytes) -> list[PageImage]:
        parsed, at = [], 0
        for image in images:
            match image:
                case [
                    str(digest),
                    "image/png" | "image/jpeg" as media_type,
                    int(width),
                    int(height),
                    int(size),
                    str() | None as fault,
                ]:
                    data = self._images.setdefault(digest, blob[at : at + size])
                    parsed.append(PageImage(digest, media_type, data, width, height, fault))
                    at += size
                case _:
                    raise ProtocolError("an image makes no sense")
        return parsed

    async def _read(self) -> tuple[Any, bytes]:
        try:
            header = await self._stream.readexactly(_HEADER.size)
            message_size, blob_size = _HEADER.unpack(header)
            self._bytes += message_size + blob_size
            self._limits.require("output_bytes", self._bytes)
            message = await self._stream.readexactly(message_size)
            blob = await self._stream.readexactly(blob_size)
            return json.loads(message), blob
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ProtocolError("the reading process stopped before the end") from error
        except ValueError as error:
            raise ProtocolError("a frame is not JSON") from error


def _flat(layout: PageLayout) -> list[Any]:
    spans = [number for start, end, rect in layout.spans for number in (start, end, *rect)]
    return [layout.unit, [layout.width, layout.height], spans, [length for rect in layout.images for length in rect]]


def _parse_layout(layout: Any, characters: int, images: int) -> PageLayout:
    match layout:
        case ["pt" | "px" as unit, [*size], [*spans], [*places]] if all(
            type(number) is int and abs(number) <= _MAX_LENGTH for number in (*size, *spans, *places)
        ) and (len(size), len(spans) % 6, len(places)) == (2, 0, 4 * images):
            rects = tuple(Rect(*places[at : at + 4]) for at in range(0, len(places), 4))
            placed = [Span(spans[at], spans[at + 1], Rect(*spans[at + 2 : at + 6])) for at in range(0, len(spans), 6)]
            if all(0 <= span.start < span.end <= characters for span in placed):
                return PageLayout(size[0], size[1], unit, tuple(placed), rects)
    raise ProtocolError("a layout makes no sense")
