"""Bounds how many requests a service works on at once: who comes later is told so, and not queued in memory."""

from __future__ import annotations

from opentelemetry import metrics
from starlette.types import ASGIApp, Receive, Scope, Send

from services.chassis.http.errors import problem
from services.chassis.kernel.errors import UnavailableError

_UNBOUNDED = ("/health/", "/metrics")

_under_way = metrics.get_meter("cauce").create_up_down_counter(
    "cauce.http.requests", unit="{request}", description="Requests under way, those that wait for the database included"
)


class RequestLimit:
    """ASGI middleware. Probes are always answered."""

    def __init__(self, app: ASGIApp, *, most: int) -> None:
        self._app = app
        self._free = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on while there is room, else answer 503 ``TOO_MANY_REQUESTS``."""
        if scope["type"] != "http" or scope["path"].startswith(_UNBOUNDED):
            await self._app(scope, receive, send)
        elif self._free == 0:
            refusal = UnavailableError("TOO_MANY_REQUESTS", "too many requests at once", remedy="try again soon")
            await problem(refusal)(scope, receive, send)
        else:
            self._free -= 1
            _under_way.add(1)
            try:
                await self._app(scope, receive, send)
            finally:
                self._free += 1
                _under_way.add(-1)
