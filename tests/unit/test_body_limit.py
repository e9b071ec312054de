"""A request's body is bounded in size and in patience."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Message

from services.chassis.http.app import create_app
from services.chassis.http.body_limit import BodyLimit
from services.chassis.kernel.errors import IncompleteInputError
from services.chassis.settings import HttpSettings
from services.files.entrypoints.http.streaming import json_body


@asynccontextmanager
async def nothing(_: FastAPI) -> AsyncIterator[None]:
    yield


async def answer(parts: list[bytes], *, ends: bool) -> tuple[int, bytes]:
    """Send a body in parts; one that does not end goes on with a blank now and then."""
    app = create_app("Test", service="search", settings=HttpSettings(), lifespan=nothing, checks=dict)
    app.add_middleware(BodyLimit, max_bytes=100, seconds=0.2)

    @app.post("/echo")
    async def echo(body: dict[str, Any]) -> dict[str, Any]:
        return body

    messages = [
        {"type": "http.request", "body": part, "more_body": not ends or number < len(parts)}
        for number, part in enumerate(parts, 1)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        if messages:
            return messages.pop(0)
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/echo",
        "raw_path": b"/echo",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"host", b"test")],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("test", 80),
        "client": ("test", 1),
    }
    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")
    return next(message["status"] for message in sent if message["type"] == "http.response.start"), body


@pytest.mark.parametrize(
    ("parts", "ends", "status", "code"),
    [
        ([b'{"a": ', b"1}"], True, 200, None),
        ([b'{"a": "' + b"x" * 60, b"y" * 60 + b'"}'], True, 413, b"BODY_TOO_LARGE"),
        ([b'{"a": '], False, 408, b"BODY_INCOMPLETE"),
    ],
    ids=["within", "too large", "trickling"],
)
async def test_a_body_is_taken_refused_or_given_up(
    parts: list[bytes], ends: bool, status: int, code: bytes | None
) -> None:
    found, body = await answer(parts, ends=ends)
    assert found == status
    assert code is None or code in body


async def test_json_for_the_files_service_is_given_up_likewise() -> None:
    async def trickle() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    with pytest.raises(IncompleteInputError, match=r"not whole within 0\.2 seconds"):
        await json_body(trickle(), seconds=0.2)
