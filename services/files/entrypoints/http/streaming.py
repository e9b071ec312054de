"""JSON in, files and events out, the latter piece by piece."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from services.chassis.http.body_limit import BODY_SECONDS
from services.chassis.http.slots import Slots
from services.chassis.kernel.errors import InvalidInputError
from services.files.domain.file import File, StoredContent
from services.files.entrypoints.http.bodies import AnswerSlots, incomplete

MAX_JSON_BYTES = 64 * 1024


async def json_body(
    body: AsyncIterator[bytes], max_bytes: int = MAX_JSON_BYTES, *, seconds: float = BODY_SECONDS
) -> Any:
    """A small body as JSON.

    Raises:
        InvalidInputError: ``INVALID_REQUEST``.
        IncompleteInputError: ``UPLOAD_INCOMPLETE``, it is not whole in time.
    """
    data = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in body:
                data += chunk
                if len(data) > max_bytes:
                    message = f"the body has more than {max_bytes} bytes"
                    raise InvalidInputError("INVALID_REQUEST", message, where="body")
    except TimeoutError as error:
        raise incomplete(f"the body was not whole within {seconds:g} seconds") from error
    return parse_json(bytes(data), "body")


def parse_json(data: str | bytes, where: str) -> Any:
    """Parse JSON text. Raises InvalidInputError ``INVALID_REQUEST``, also where an object has a key twice."""
    try:
        return json.loads(data, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError("INVALID_REQUEST", f"not valid JSON: {error}", where=where) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("an object has a key twice")
    return values


class ContentResponse(StreamingResponse):
    """A file's bytes, to be saved and never to be shown as a page of this service.

    It holds a place until it is sent, or its caller hangs up or loses it.
    """

    def __init__(self, file: File, content: StoredContent, body: AsyncIterator[bytes], slots: AnswerSlots) -> None:
        super().__init__(
            body,
            headers={
                "Content-Type": file.declared_media_type,
                "Content-Length": str(content.size_bytes),
                "Content-Disposition": content_disposition(file.name),
                "ETag": f'"{content.sha256.hex()}"',
                "X-Content-Type-Options": "nosniff",
            },
        )
        self._slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. Raises UnavailableError ``TOO_MANY_REQUESTS`` when no place is free."""
        with self._slots.take(scope, send) as paced_send:
            await super().__call__(scope, receive, paced_send)


def content_disposition(name: str) -> str:
    """The header that has a file saved under its name (RFC 6266), with a plain form for old readers."""
    plain = "".join(character if character.isascii() and character not in '"%' else "_" for character in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


class EventStream(StreamingResponse):
    """Server-sent events. It holds a place until it ends or its caller hangs up."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[str], slots: Slots) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. Raises UnavailableError ``TOO_MANY_REQUESTS`` when no place is free."""
        with self._slots.take():
            await super().__call__(scope, receive, send)
