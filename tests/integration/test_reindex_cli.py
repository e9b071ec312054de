"""``cauce reindex`` against a service that answers as the embeddings service does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli import reindex
from cli.main import app


def spaces(missing: int, *, rate: int | None = None, fault: str | None = None) -> dict[str, Any]:
    """An answer: two spaces, the second not whole."""
    told = {"texts": 10, "texts_per_minute": None, "fault": None, "begun_at": None, "activated_at": None}
    built = {"name": "two", "state": "BUILDING", "missing": missing, "texts_per_minute": rate, "fault": fault}
    return {"spaces": [told | {"name": "one", "state": "ACTIVE", "missing": 0}, told | built]}


class Service(BaseHTTPRequestHandler):
    """Answers each request with the next that it was told, the last one for ever."""

    asked: list[tuple[str, str, Any]]
    answers: list[dict[str, Any]]

    def _answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append((self.command, self.path, json.loads(content) if content else None))
        body = json.dumps(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Service]]:
    handler = type("Handler", (Service,), {"asked": [], "answers": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    for name in ("FILES", "EMBEDDINGS", "SEARCH"):
        monkeypatch.setenv(f"CAUCE_{name}_URL", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setattr(reindex, "POLL_SECONDS", 0.01)
    yield handler
    server.shutdown()
    server.server_close()
    thread.join()


def cauce(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["reindex", *arguments])


def test_a_space_is_followed_until_nothing_is_missing_and_then_made_active(service: type[Service]) -> None:
    service.answers = [spaces(8, rate=60), spaces(4, rate=60, fault="EMBEDDER_UNAVAILABLE: away"), spaces(0, rate=60)]

    done = cauce("--space", "two", "--texts-per-minute", "60", "--swap")

    assert done.exit_code == 0
    assert service.asked == [
        ("POST", "/reindex", {"space": "two", "textsPerMinute": 60}),
        ("GET", "/reindex", None),
        ("GET", "/reindex", None),
        ("POST", "/reindex/swap", None),
    ]
    assert "BUILDING  two  2 of 10 texts, at most 60 a minute\n" in done.output
    assert "6 of 10 texts, at most 60 a minute; EMBEDDER_UNAVAILABLE: away\n" in done.output
    assert "ACTIVE    one  10 of 10 texts\n" in done.stdout


def test_a_space_that_rests_is_not_waited_for(service: type[Service]) -> None:
    service.answers = [spaces(8, rate=0)]

    done = cauce("--space", "two", "--texts-per-minute", "0", "--json")

    assert [json.loads(line)["missing"] for line in done.stdout.splitlines()] == [0, 8]
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    ("option", "request_"),
    [
        ("--status", ("GET", "/reindex", None)),
        ("--swap", ("POST", "/reindex/swap", None)),
        ("--rollback", ("POST", "/reindex/rollback", None)),
        ("--drop", ("DELETE", "/reindex", None)),
    ],
)
def test_each_step_is_one_request(service: type[Service], option: str, request_: tuple[str, str, None]) -> None:
    service.answers = [spaces(0)]
    assert cauce(option).exit_code == 0
    assert service.asked == [request_]


@pytest.mark.parametrize(
    "options",
    [[], ["--drop", "--rollback"], ["--space", "two", "--drop"], ["--swap", "--texts-per-minute", "5"]],
)
def test_options_that_do_not_go_together_are_refused(service: type[Service], options: list[str]) -> None:
    refused = cauce(*options, "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error"]["code"]) == (1, "OPTIONS_UNCLEAR")
    assert service.asked == []
