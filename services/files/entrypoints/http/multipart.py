"""Reads a multipart/form-data body as it arrives: first some fields, then one file, whose bytes are only passed on.

The body ends with its last boundary: what follows is not waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from services.chassis.kernel.errors import IncompleteInputError, InvalidInputError

FILE_PART = "file"
MAX_FIELD_BYTES = 64 * 1024
"""The most that all fields together may have."""
MAX_OVERHEAD_BYTES = 64 * 1024
"""The most that a body may have besides its fields and its file: boundaries, headers, lines before the first."""


@dataclass(slots=True)
class _Part:
    """What the headers of a part say."""

    headers: dict[str, bytes] = field(default_factory=dict)
    name: str = ""
    file_name: str | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """The fields that came before the file, and what the file's own part says of it."""

    fields: dict[str, str]
    file_name: str | None
    media_type: str | None


class MultipartBody:
    """One request's body. Read ``form`` once, then ``file``.

    Args:
        content_type: the request's header.
        body: the request's bytes as they arrive.
        known_fields: the fields that may come before the file, each once.

    Raises:
        InvalidInputError: ``INVALID_REQUEST``, from here or while reading.
    """

    def __init__(self, content_type: str, body: AsyncIterator[bytes], known_fields: frozenset[str]) -> None:
        boundary = parse_options_header(content_type)[1].get(b"boundary")
        if not boundary:
            raise _invalid("the multipart body has no boundary", "header.content-type")
        self._body = body
        self._known_fields = known_fields
        self._arrived: deque[_Part | bytes] = deque()
        self._part = _Part()
        self._header = [b"", b""]
        self._is_whole = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._on_part_begin,
                    "on_header_field": self._on_header_field,
                    "on_header_value": self._on_header_value,
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": self._on_headers_finished,
                    "on_part_data": self._on_part_data,
                    "on_end": self._on_end,
                },
            )
        except FormParserError as error:
            raise _invalid(str(error), "header.content-type") from error
        self._events = self._parse()

    async def form(self) -> Form:
        """Read up to the first byte of the file.

        Raises:
            IncompleteInputError: ``UPLOAD_INCOMPLETE``.
        """
        values: dict[str, bytearray] = {}
        value = bytearray()
        total = 0
        async for event in self._events:
            if isinstance(event, bytes):
                total += len(event)
                if total > MAX_FIELD_BYTES:
                    raise _invalid(f"the fields have more than {MAX_FIELD_BYTES} bytes")
                value += event
            elif event.name == FILE_PART:
                fields = {name: _text(content, f"body.{name}") for name, content in values.items()}
                declared = event.headers.get("content-type")
                return Form(fields, event.file_name, declared.decode("latin-1").strip() if declared else None)
            elif event.name not in self._known_fields or event.name in values:
                known = ", ".join(sorted(self._known_fields))
                raise _invalid(f"the field is unknown or repeated; known are {known}", f"body.{event.name}")
            else:
                value = values[event.name] = bytearray()
        raise _invalid("the body has no file", f"body.{FILE_PART}")

    async def file(self) -> AsyncIterator[bytes]:
        """The bytes of the file, as they arrive. They are all there only when this ends without an error.

        Raises:
            IncompleteInputError: ``UPLOAD_INCOMPLETE``.
        """
        async for event in self._events:
            if not isinstance(event, bytes):
                raise _invalid("nothing may follow the file", f"body.{event.name}", "send the fields before the file")
            yield event

    async def _parse(self) -> AsyncIterator[_Part | bytes]:
        overhead = 0
        async for chunk in self._body:
            overhead += len(chunk)
            try:
                self._parser.write(chunk)
            except FormParserError as error:
                raise _invalid(f"the multipart body is malformed: {error}") from error
            while self._arrived:
                event = self._arrived.popleft()
                if isinstance(event, bytes):
                    overhead -= len(event)
                yield event
            if self._is_whole:
                return
            if overhead > MAX_OVERHEAD_BYTES:
                raise _invalid(f"the body has more than {MAX_OVERHEAD_BYTES} bytes besides its fields and its file")
        raise IncompleteInputError(
            "UPLOAD_INCOMPLETE", "the body ended before its last boundary", where="body", remedy="send it again"
        )

    def _on_part_begin(self) -> None:
        self._part = _Part()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header[0] += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1] += data[start:end]

    def _on_header_end(self) -> None:
        name, value = self._header
        self._part.headers[name.decode("latin-1").lower()] = value
        self._header = [b"", b""]

    def _on_headers_finished(self) -> None:
        options = parse_options_header(self._part.headers.get("content-disposition"))[1]
        self._part.name = _text(options.get(b"name", b""), "body")
        if b"filename" in options:
            self._part.file_name = _text(options[b"filename"], f"body.{FILE_PART}", "INVALID_NAME")
        self._arrived.append(self._part)

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._arrived.append(data[start:end])

    def _on_end(self) -> None:
        self._is_whole = True


def _text(data: bytes | bytearray, where: str, code: str = "INVALID_REQUEST") -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(code, "the text is not UTF-8", where=where) from error


def _invalid(message: str, where: str = "body", remedy: str | None = None) -> InvalidInputError:
    return InvalidInputError("INVALID_REQUEST", message, where=where, remedy=remedy)
