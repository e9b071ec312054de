"""A local HTTP server that answers as the chat completions API of OpenAI does, as far as this project calls it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from typing import Any

from tests.support.scripted_server import Reply, ScriptedServer

MODEL = "test-model"
KEY = "secret-key"
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    path: str
    body: dict[str, Any]

    @property
    def operation(self) -> str:
        """What the answer is for."""
        name: str = self.body["response_format"]["json_schema"]["name"]
        return name

    @property
    def content(self) -> dict[str, Any]:
        """What the question is about."""
        material: dict[str, Any] = json.loads(self.body["messages"][1]["content"])
        return material


Answers = Callable[[Request], Any]


def completion(content: Any, *, finish_reason: str = "stop", usage: Any = USAGE, **message: Any) -> Reply:
    """A completion whose text is ``content``, as JSON where it is no text."""
    text = content if isinstance(content, str | None) else json.dumps(content)
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish_reason}
    return Reply(200, {"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})


def failure(status: int, message: str = "as told by the test", *, param: str | None = None, **headers: str) -> Reply:
    """An error as the API words it."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply(status, {"error": {"message": message, "type": "error", "param": param, "code": None}}, named)


class OpenAiServer(ScriptedServer[Request]):
    """The server. By its rules it answers what ``answers`` makes of a request."""

    def __init__(self, answers: Answers | None = None) -> None:
        super().__init__()
        self.answers = answers

    def parse(self, path: str, body: bytes) -> Request:
        """The request as tests see it."""
        return Request(path, json.loads(body))

    def answer(self, request: Request, path: str, headers: Message, body: bytes) -> Reply:
        """Answer by the rules."""
        if path != "/v1/chat/completions":
            return failure(404, f"no {path}")
        if headers.get("Authorization") != f"Bearer {KEY}":
            return failure(401, f"Incorrect API key provided: {headers.get('Authorization')}")
        if request.body["model"] != MODEL:
            return failure(404, f"The model {request.body['model']!r} does not exist")
        if self.answers is None:
            return failure(500, "nothing to say")
        return completion(self.answers(request))
