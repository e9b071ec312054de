"""Bounds what a request may send: a body over the limit is refused, one that takes too long is given up."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 1024 * 1024
BODY_SECONDS = 30.0
"""How long a small body may take. A byte now and then must not keep a request's place for ever."""


class BodyLimit:
    """ASGI middleware for services whose routes read their bodies whole."""

    def __init__(self, app: ASGIApp, *, max_bytes: int = MAX_BODY_BYTES, seconds: float = BODY_SECONDS) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a body that is counted and waited for only so long."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received, more = 0, True
        deadline = asyncio.get_running_loop().time() + self._seconds

        async def bounded() -> Message:
            nonlocal received, more
            if not more:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError as error:
                raise HTTPException(408, f"the body was not whole within {self._seconds:g} seconds") from error
            received += len(message.get("body", b""))
            more = bool(message.get("more_body", False))
            if received > self._max_bytes:
                raise HTTPException(413, f"the body has more than {self._max_bytes:,} bytes")
            return message

        await self._app(scope, bounded, send)
