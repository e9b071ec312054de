"""A local HTTP server that answers as the Gemini API does, as far as this project calls it.

It knows ``batchEmbedContents``, ``countTokens`` and ``generateContent``, keeps the rules that the service is known to
keep (at most 100 texts a call, 4 MiB, one vector for each content, only full-size vectors of ``gemini-embedding-001``
of unit length, input beyond the model's limit cut without a word) and can be told to misbehave.
"""

from __future__ import annotations

import json
import math
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from hashlib import blake2b
from io import BytesIO
from typing import Any

from PIL import Image

from tests.support.scripted_server import Reply, ScriptedServer

API_KEY = "test-key"
PREFIX = "/v1/models/"
MOST_ITEMS = 100
MOST_BYTES = 4_194_304
FULL_SIZE = 3072
INPUT_TOKENS = {"gemini-embedding-001": 2048, "gemini-embedding-2": 8192}


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    model: str
    method: str
    body: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        """The texts to embed."""
        return ["".join(part["text"] for part in item["content"]["parts"]) for item in self.body["requests"]]


Behaviour = Callable[[Request], Reply]


def failure(
    status: int,
    name: str,
    *,
    message: str = "as told by the test",
    retry_info: str | None = None,
    retry_after: str | None = None,
    reason: str | None = None,
) -> Reply:
    """An error as the API words it."""
    details: list[dict[str, Any]] = []
    if retry_info is not None:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": retry_info})
    if reason is not None:
        details.append({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason})
    body = {"error": {"code": status, "message": message, "status": name, "details": details}}
    return Reply(status, body, (("Retry-After", retry_after),) if retry_after is not None else ())


def description(text: str | None, finish_reason: str = "STOP") -> Reply:
    """An answer of ``generateContent``."""
    candidate: dict[str, Any] = {"finishReason": finish_reason, "index": 0}
    if text is not None:
        candidate["content"] = {"role": "model", "parts": [{"text": text}]}
    usage = {"promptTokenCount": 258, "candidatesTokenCount": 20, "totalTokenCount": 278}
    return Reply(200, {"candidates": [candidate], "usageMetadata": usage})


def tokens(text: str) -> int:
    """How many tokens the server takes a text for: about four characters each."""
    return math.ceil(len(text) / 4)


def vector(text: str, model: str, dimensions: int, task: str | None = None) -> list[float]:
    """A vector that shares its direction with texts that share its words, and a little with its task."""
    numbers = [0.0] * FULL_SIZE
    for word in [task or "", *text[: INPUT_TOKENS[model] * 4].lower().split()]:
        digest = blake2b(word.strip(".,:;¿?¡!").encode(), digest_size=4).digest()
        numbers[int.from_bytes(digest) % dimensions] += 1.0
    norm = math.sqrt(sum(number * number for number in numbers)) or 1.0
    scale = 1.0 if dimensions == FULL_SIZE or model == "gemini-embedding-2" else 0.7
    return [number / norm * scale for number in numbers[:dimensions]]


class GeminiServer(ScriptedServer[Request]):
    """The server; ``url`` is the address for ``gemini_base_url``."""

    def calls(self, method: str) -> list[Request]:
        """The requests for one method."""
        return [request for request in self.requests if request.method == method]

    def parse(self, path: str, body: bytes) -> Request:
        """The request as tests see it."""
        model, _, method = path.removeprefix(PREFIX).partition(":")
        return Request(model, method, json.loads(body))

    def answer(self, request: Request, path: str, headers: Message, body: bytes) -> Reply:
        """Answer by the rules."""
        if not path.startswith(PREFIX) or request.method not in _METHODS:
            return failure(404, "NOT_FOUND", message=f"no {path}")
        if headers.get("x-goog-api-key") != API_KEY:
            return failure(400, "INVALID_ARGUMENT", message="API key not valid.", reason="API_KEY_INVALID")
        if len(body) > MOST_BYTES:
            return failure(400, "INVALID_ARGUMENT", message="Request payload size exceeds the limit")
        return _METHODS[request.method](request)


def embed(request: Request) -> Reply:
    """``batchEmbedContents``: a vector for each request."""
    items = request.body["requests"]
    if request.model not in INPUT_TOKENS:
        return failure(404, "NOT_FOUND", message=f"models/{request.model} is not found")
    if not 1 <= len(items) <= MOST_ITEMS:
        return failure(400, "INVALID_ARGUMENT", message="at most 100 requests can be in one batch")
    if any(item["model"] != f"models/{request.model}" for item in items):
        return failure(400, "INVALID_ARGUMENT", message="the models differ")
    values = [
        vector(
            text,
            request.model,
            item.get("outputDimensionality", FULL_SIZE),
            item.get("taskType") if request.model == "gemini-embedding-001" else None,
        )
        for item, text in zip(items, request.texts, strict=True)
    ]
    return Reply(200, {"embeddings": [{"values": numbers} for numbers in values]})


def _count(request: Request) -> Reply:
    text = "".join(part["text"] for content in request.body["contents"] for part in content["parts"])
    return Reply(200, {"totalTokens": tokens(text)})


def _generate(request: Request) -> Reply:
    """``generateContent`` about one image: it "sees" what stands in the PNG's ``labels`` entry."""
    (content,) = request.body["contents"]
    images = [part["inlineData"]["data"] for part in content["parts"] if "inlineData" in part]
    if len(images) != 1:
        return failure(400, "INVALID_ARGUMENT", message="one image is wanted")
    try:
        with Image.open(BytesIO(urlsafe_b64decode(images[0]))) as image:
            image.load()
            labels = image.info.get("labels")
    except OSError:
        return failure(400, "INVALID_ARGUMENT", message="Unable to process input image")
    return description(f"Un esquema con: {labels}." if labels else "NONE")


_METHODS: dict[str, Behaviour] = {
    "batchEmbedContents": embed,
    "countTokens": _count,
    "generateContent": _generate,
}
