"""Bounds what a request may send: a body over the limit is refused, one that stalls is given up."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 1024 * 1024
IDLE_SECONDS = 30.0


class BodyLimit:
    """ASGI middleware for services whose routes read their bodies whole."""

    def __init__(self, app: ASGIApp, *, max_bytes: int = MAX_BODY_BYTES, idle_seconds: float = IDLE_SECONDS) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._idle_seconds = idle_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a body that is counted and waited for only so long."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received, more = 0, True

        async def bounded() -> Message:
            nonlocal received, more
            if not more:
                return await receive()
            try:
                async with asyncio.timeout(self._idle_seconds):
                    message = await receive()
            except TimeoutError as error:
                raise HTTPException(408, f"no byte of the body came for {self._idle_seconds:g} seconds") from error
            received += len(message.get("body", b""))
            more = bool(message.get("more_body", False))
            if received > self._max_bytes:
                raise HTTPException(413, f"the body has more than {self._max_bytes:,} bytes")
            return message

        await self._app(scope, bounded, send)
