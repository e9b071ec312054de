"""A local HTTP server that answers as the Gemini API does, as far as this project calls it.

It knows ``batchEmbedContents``, ``countTokens`` and ``generateContent``, keeps the rules that the service is known to
keep (at most 100 texts a call, 4 MiB, one vector for each content, only full-size vectors of ``gemini-embedding-001``
of unit length, input beyond the model's limit cut without a word) and can be told to misbehave.
"""

from __future__ import annotations

import json
import math
import threading
from base64 import urlsafe_b64decode
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

from PIL import Image

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


@dataclass(frozen=True)
class Reply:
    """What the server answers; ``body`` is sent as it is when it is text."""

    status: int
    body: Any
    headers: tuple[tuple[str, str], ...] = ()


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


class GeminiServer:
    """A context manager around the running server.

    Attributes:
        requests: what came in, in order.
        url: the address for ``gemini_base_url``.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._script: deque[Behaviour] = deque()
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> GeminiServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def then(self, *replies: Reply | Behaviour) -> None:
        """Answer the next requests so, one each; after them the server behaves again."""
        for reply in replies:
            self._script.append(reply if callable(reply) else _always(reply))

    def then_hang(self) -> None:
        """Leave the next request without an answer until the server stops."""

        def hang(_: Request) -> Reply:
            self._released.wait()
            return failure(503, "UNAVAILABLE")

        self._script.append(hang)

    def calls(self, method: str) -> list[Request]:
        """The requests for one method."""
        return [request for request in self.requests if request.method == method]

    def answer(self, path: str, key: str | None, size: int, body: bytes) -> Reply:
        """Answer a request by the script, else by the rules."""
        model, _, method = path.removeprefix(PREFIX).partition(":")
        request = Request(model, method, json.loads(body))
        with self._lock:
            self.requests.append(request)
            behaviour = self._script.popleft() if self._script else None
        if behaviour is not None:
            return behaviour(request)
        if not path.startswith(PREFIX) or method not in _METHODS:
            return failure(404, "NOT_FOUND", message=f"no {path}")
        if key != API_KEY:
            return failure(400, "INVALID_ARGUMENT", message="API key not valid.", reason="API_KEY_INVALID")
        if size > MOST_BYTES:
            return failure(400, "INVALID_ARGUMENT", message="Request payload size exceeds the limit")
        return _METHODS[method](request)


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


def _always(reply: Reply) -> Behaviour:
    return lambda _: reply


def _handler(gemini: GeminiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            reply = gemini.answer(self.path, self.headers.get("x-goog-api-key"), len(body), body)
            data = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
            try:
                self.send_response(reply.status)
                for name, value in reply.headers:
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except ConnectionError:
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
