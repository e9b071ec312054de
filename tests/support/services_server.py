"""A local HTTP server that answers as the files and the search service do, as far as the command line calls them.

A file's name says what becomes of it: ``corrupt*`` ends FAILED, ``scan*`` ends EMPTY, ``slow*`` is never final,
``huge*`` is refused, ``dropped*`` has its upload cut off. Everything else is COMPLETED. Uploads are counted, not kept.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

PAGE = 2
SEARCH = "/api/web/embeddings/files/search"
CONTEXT = "/api/web/embeddings/context"
PASSAGE = {
    "file_id": 1,
    "file_name": "manual.pdf",
    "chunk_id": 11,
    "position": 3,
    "page_from": 2,
    "page_to": 3,
    "score": 0.875,
    "text": "La válvula abre a 11,5 bar.",
}
EXECUTED = {"mode": "semantic", "legs": {}, "queries": [], "techniques": []}


@dataclass
class ServicesServer:
    """What the server was told, and how it is to behave."""

    url: str = ""
    files: dict[int, dict[str, Any]] = field(default_factory=dict)
    searches: list[dict[str, Any]] = field(default_factory=list)
    chunk_queries: list[dict[str, str]] = field(default_factory=list)
    uploading: int = 0
    most_uploading: int = 0
    together: int = 1
    """No upload goes on before so many were under way at once."""
    lost_answers: int = 0
    """So many registrations get no answer, though the file is there."""
    refusals: int = 0
    """So many registrations after those are refused for now."""
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What was registered under each key of a client."""
    broken_streams: int = 0
    """So many event streams end before the file is final."""
    lock: threading.Condition = field(default_factory=threading.Condition)

    def add(self, name: str, **state: Any) -> dict[str, Any]:
        """Register a file."""
        with self.lock:
            file_id = len(self.files) + 1
            self.files[file_id] = {
                "file_id": file_id,
                "name": name,
                "size_bytes": None,
                "status": "UPLOADING",
                "outcome": None,
                "outcome_reason": None,
                "pages": None,
                "chunks": 0,
                "stage": None,
                "progress": {"done": 0, "total": 0},
                "error_code": None,
                "error_message": None,
            } | state
            return self.files[file_id]

    def final(self, name: str) -> dict[str, Any]:
        """How a file of that name ends."""
        if name.startswith("corrupt"):
            return {"status": "FAILED", "error_code": "CORRUPT", "error_message": "the document cannot be read"}
        if name.startswith("scan"):
            return {"status": "COMPLETED", "outcome": "EMPTY", "outcome_reason": "NO_TEXT", "pages": 1}
        return {"status": "COMPLETED", "outcome": "INDEXED", "pages": 12, "chunks": 34}


@contextmanager
def services_server() -> Iterator[ServicesServer]:
    """The server on a free port of loopback, for the time of the context."""
    state = ServicesServer()

    class Handler(_Handler):
        server_state = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Refusal(Exception):
    def __init__(
        self, status: int, code: str, detail: str, where: str | None = None, remedy: str | None = None
    ) -> None:
        self.status = status
        self.problem = {"status": status, "code": code, "detail": detail, "where": where, "remedy": remedy}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: ServicesServer

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        try:
            status, body = self._route(self.command, parts.path, query)
        except _Refusal as refusal:
            self._send(refusal.status, refusal.problem, "application/problem+json")
        else:
            if status:
                self._send(status, body)

    def _route(self, method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        state = self.server_state
        match (method, *path.strip("/").split("/")):
            case ("GET", ""):
                return 200, {"service": "files", "files_url": state.url, "search_url": state.url}
            case ("POST", "files"):
                return self._register()
            case ("GET", "files"):
                ids = sorted((i for i in state.files if i < int(query.get("after", 1 << 62))), reverse=True)
                more = ids[PAGE - 1] if len(ids) > PAGE else None
                return 200, {"files": [state.files[i] for i in ids[:PAGE]], "next": more}
            case ("GET", "files", number):
                return 200, self._file(number)
            case ("DELETE", "files", number):
                del state.files[self._file(number)["file_id"]]
                return 204, None
            case ("POST", "files", number, "retry"):
                self._file(number).update(status="PENDING", error_code=None, error_message=None)
                return 202, self._file(number)
            case ("PUT", "files", number, "content"):
                return self._receive(self._file(number))
            case ("GET", "files", number, "events"):
                return self._stream(self._file(number))
            case ("POST", *_) if path == SEARCH:
                return 200, self._search(self._json())
            case ("POST", *_) if path == CONTEXT:
                return 200, self._context(self._json())
            case ("GET", "api", "web", "embeddings", "files", number, "chunks"):
                return 200, self._chunks(number, query)
        raise _Refusal(404, "NOT_FOUND", "Not Found")

    def _file(self, number: str) -> dict[str, Any]:
        file = self.server_state.files.get(int(number))
        if file is None:
            raise _Refusal(404, "FILE_NOT_FOUND", f"there is no file {number}", "fileId")
        return file

    def _register(self) -> tuple[int, Any]:
        state = self.server_state
        name, key = self._json()["name"], self.headers["Idempotency-Key"]
        file = state.keys.get(key) or state.keys.setdefault(key, state.add(name))
        if state.lost_answers:
            state.lost_answers -= 1
            self.close_connection = True
            return 0, None
        if state.refusals:
            state.refusals -= 1
            raise _Refusal(503, "TOO_MANY_REQUESTS", "too many requests at once")
        return 201, file

    def _receive(self, file: dict[str, Any]) -> tuple[int, Any]:
        state = self.server_state
        announced = int(self.headers["Content-Length"])
        if file["name"].startswith("huge"):
            file.update(status="FAILED", error_code="FILE_TOO_LARGE", error_message="the file has too many bytes")
            self.close_connection = True
            raise _Refusal(413, "FILE_TOO_LARGE", "the file has too many bytes", "content", "send a smaller file")
        with state.lock:
            state.uploading += 1
            state.most_uploading = max(state.most_uploading, state.uploading)
            state.lock.notify_all()
            state.lock.wait_for(lambda: state.most_uploading >= state.together, timeout=60)
        try:
            left = announced
            while left and (block := self.rfile.read(min(left, 65536))):
                left -= len(block)
                if file["name"].startswith("dropped"):
                    file.update(status="FAILED", error_code="UPLOAD_INCOMPLETE", error_message="the upload stopped")
                    self.close_connection = True
                    return 0, None
        finally:
            with state.lock:
                state.uploading -= 1
        file.update(status="PENDING", size_bytes=announced)
        return 202, file

    def _stream(self, file: dict[str, Any]) -> tuple[int, Any]:
        state = self.server_state
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self._event(file)
        file.update(status="PROCESSING", stage="EMBEDDING", progress={"done": 1, "total": 2})
        self._event(file)
        with state.lock:
            broken, state.broken_streams = state.broken_streams > 0, max(0, state.broken_streams - 1)
        if not broken and not file["name"].startswith("slow"):
            file.update(stage=None, progress={"done": 0, "total": 0}, **state.final(file["name"]))
            self._event(file)
        return 0, None

    def _event(self, file: dict[str, Any]) -> None:
        self.wfile.write(f": keep-alive\n\nevent: status\ndata: {json.dumps(file)}\n\n".encode())

    def _search(self, body: dict[str, Any]) -> dict[str, Any]:
        self.server_state.searches.append(body)
        if not body["query"].strip():
            raise _Refusal(422, "INVALID_QUERY", "the query is empty", "query", "ask something")
        results = [PASSAGE] if "válvula" in body["query"] else []
        total = {"count": 2 * len(results), "exact": True, "reason": None}
        return {"results": results, "total": total, "executed": EXECUTED}

    def _context(self, body: dict[str, Any]) -> dict[str, Any]:
        self.server_state.searches.append(body)
        return {
            "items": [],
            "text": "[1] manual.pdf, page 2\nLa válvula abre a 11,5 bar.",
            "tokens": 20,
            "budget": 100,
            "left_out": {"budget": 3, "duplicates": 0, "per_file": 1, "beyond": 0},
            "executed": {
                "passages": EXECUTED,
                "resources": EXECUTED,
                "techniques": [
                    {"name": name, "status": "UNAVAILABLE", "reason": "no model is set"}
                    for name in ("rewrite",)
                    if name in body
                ],
            },
        }

    def _chunks(self, number: str, query: dict[str, str]) -> dict[str, Any]:
        self.server_state.chunk_queries.append(query)
        file = self._file(number)
        positions = [p for p in range(5) if p > int(query.get("after", -1))]
        keys = {"page_from": 2, "page_to": 2, "char_start": 0, "char_end": 4}
        return {
            "file_id": file["file_id"],
            "file_name": file["name"],
            "pages": query.get("pages"),
            "chunks": [{"chunk_id": p, "position": p, "text": f"text {p}"} | keys for p in positions[:PAGE]],
            "next": positions[PAGE - 1] if len(positions) > PAGE else None,
        }

    def _json(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _send(self, status: int, body: Any, media_type: str = "application/json") -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
