"""A local HTTP server that answers as a paid provider does, keeps what it was asked, and can be told to misbehave."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Generic, Self, TypeVar

Request = TypeVar("Request")


@dataclass(frozen=True)
class Reply:
    """What the server answers; ``body`` is sent as it is when it is text or bytes."""

    status: int
    body: Any
    headers: tuple[tuple[str, str], ...] = ()


class ScriptedServer(Generic[Request]):
    """A context manager around the running server.

    Attributes:
        requests: what came in, in order.
        url: its address.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._script: deque[Callable[[Request], Reply]] = deque()
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuse connections from now on."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def parse(self, path: str, body: bytes) -> Request:
        """The request as tests see it."""
        raise NotImplementedError

    def answer(self, request: Request, path: str, headers: Message, body: bytes) -> Reply:
        """Answer by the rules."""
        raise NotImplementedError

    def then(self, *replies: Reply | Callable[[Request], Reply]) -> None:
        """Answer the next requests so, one each; after them the server behaves again."""
        for reply in replies:
            self._script.append(reply if callable(reply) else _always(reply))

    def forget_script(self) -> None:
        """Behave again."""
        self._script.clear()

    def then_hang(self) -> None:
        """Leave the next request without an answer until the server stops."""

        def hang(_: Request) -> Reply:
            self._released.wait()
            return Reply(503, "")

        self._script.append(hang)

    def receive(self, path: str, headers: Message, body: bytes) -> Reply:
        """Answer a request by the script, else by the rules."""
        request = self.parse(path, body)
        with self._lock:
            self.requests.append(request)
            behaviour = self._script.popleft() if self._script else None
        return behaviour(request) if behaviour is not None else self.answer(request, path, headers, body)


def _always(reply: Reply) -> Callable[[Any], Reply]:
    return lambda _: reply


def _handler(server: ScriptedServer[Any]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            reply = server.receive(self.path, self.headers, body)
            text = reply.body if isinstance(reply.body, str | bytes) else json.dumps(reply.body)
            data = text.encode() if isinstance(text, str) else text
            try:
                self.send_response(reply.status)
                for name, value in ({"Content-Type": "application/json"} | dict(reply.headers)).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except ConnectionError:
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
