"""``cauce resources`` and ``cauce sweep``, against the real catalogue where it is concerned."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from tests.support.broker import Kafka
from tests.support.files import FilesServer, running_files
from tests.support.postgres import Database
from tests.support.services_server import EXECUTED

FOUND = {
    "entity_type": "variable",
    "entity_id": 7,
    "name": "Caudal",
    "embedding_text": "# Caudal\n\nCaudal de entrada.",
    "score": 0.875,
    "updated_at": "2026-01-31T09:30:00Z",
}
SWEPT = {"total": 3, "counts": {"file": {"MISSING": 1}, "variable": {"STALE": 2}}}


class OtherServices(BaseHTTPRequestHandler):
    """The search and the embeddings service, as far as these commands call them."""

    asked: list[Any]

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append((self.path, json.loads(content) if content else None))
        answer = SWEPT if self.path == "/sweep" else {"results": [FOUND], "executed": EXECUTED}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the other services were asked; their addresses are in the environment."""
    handler = type("Handler", (OtherServices,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    for name in ("FILES", "EMBEDDINGS", "SEARCH"):
        monkeypatch.setenv(f"CAUCE_{name}_URL", url)
    yield handler.asked  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
async def files(
    database: Database, kafka: Kafka, tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FilesServer]:
    async with running_files(database, tmp_path / "objects", **kafka.options) as server:
        monkeypatch.setenv("CAUCE_FILES_URL", server.url)
        yield server


async def resources(*arguments: object) -> Result:
    """Run a command beside the service, which is on this loop."""
    return await asyncio.to_thread(cauce, "resources", *arguments)


def cauce(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


async def test_a_resource_is_put_shown_and_deleted(files: FilesServer) -> None:
    fields = ["--field", "unit=m³/h", "--field", "minimum=0", "--field", 'aliases=["a", "b"]', "--field", "path=1/2"]

    put = await resources("put", "variable", 7, "--name", "Caudal", *fields, "--json")
    got = await resources("get", "variable", 7, "--json")
    shown = await resources("get", "variable", 7)
    deleted = await resources("delete", "variable", 7)
    missing = await resources("get", "variable", 7, "--json")

    assert (put.exit_code, got.exit_code, shown.exit_code, deleted.exit_code) == (0, 0, 0, 0)
    (resource,) = lines(put)
    assert lines(got) == [resource]
    assert (resource["name"], resource["unit"], resource["minimum"]) == ("Caudal", "m³/h", 0)
    assert (resource["aliases"], resource["path"]) == (["a", "b"], "1/2")
    assert "m³/h" in shown.stdout
    assert deleted.stdout == "deleted variable 7\n"
    assert missing.exit_code == 1
    assert lines(missing)[0]["error"]["code"] == "RESOURCE_NOT_FOUND"


async def test_a_definition_may_stand_in_a_file(files: FilesServer, tmp_path: Path) -> None:
    definition = tmp_path / "definition.json"
    definition.write_text('{"name": "Caudal", "unit": "l/s"}')

    put = await resources("put", "variable", 7, "--json-file", definition, "--json")
    both = await resources("put", "variable", 7, "--json-file", definition, "--name", "a")

    assert lines(put)[0]["unit"] == "l/s"
    assert both.exit_code == 1
    assert "CONTRADICTORY_OPTIONS" in both.stderr


def test_what_cannot_be_a_definition_is_not_sent(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.json").write_text("{")
    Path("list.json").write_text("[]")
    refusals = [
        (["--field", "unit"], "INVALID_OPTION"),
        (["--field", "unit=m", "--field", "unit=l"], "INVALID_OPTION"),
        (["--json-file", "missing.json"], "UNREADABLE"),
        (["--json-file", "broken.json"], "INVALID_JSON"),
        (["--json-file", "list.json"], "INVALID_JSON"),
    ]
    for options, code in refusals:
        result = cauce("resources", "put", "variable", 7, *options, "--json")
        assert (result.exit_code, lines(result)[0]["error"]["code"]) == (1, code)
    assert asked == []


async def test_what_the_service_refuses_is_told(files: FilesServer) -> None:
    refusals: dict[str, Callable[[], Any]] = {
        "unknown field 'units'": lambda: resources("put", "variable", 7, "--field", "units=m"),
        "known are: aggregate_variable, ": lambda: resources("list", "valve"),
        "UNKNOWN_RESOURCE_TYPE": lambda: resources("import", "valve", "/dev/null"),
        "UNREADABLE": lambda: resources("import", "variable", "/no/such/file"),
    }
    for message, call in refusals.items():
        result = await call()
        assert result.exit_code == 1
        assert message in result.stderr


async def test_a_file_of_resources_is_imported_and_listed(files: FilesServer, tmp_path: Path) -> None:
    rows = [{"id": number, "name": f"n{number}"} for number in range(1, 1_203)]
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text("\n".join(json.dumps(row) for row in rows))
    bad.write_text('{"id": 1, "deleted": true}\n{"id": 2, "unit": 5}\nx\n')

    imported = await resources("import", "variable", good, "--json")
    failed = await resources("import", "variable", bad)
    listed = await resources("list", "variable")

    assert imported.exit_code == 0
    assert lines(imported)[0]["created"] == len(rows)
    assert failed.exit_code == 1
    assert failed.stdout.splitlines()[0] == "line 2, id 2: INVALID_RESOURCE: it must be text (unit)"
    assert failed.stdout.splitlines()[1].startswith("line 3: INVALID_REQUEST: not valid JSON")
    assert failed.stdout.splitlines()[2:] == ["0 created, 0 updated, 0 unchanged, 1 deleted, 2 failed"]
    assert listed.stdout.splitlines() == [f"{row['id']}\t{row['name']}" for row in rows[1:]]


def test_a_search_says_which_types_and_prints_what_it_found(asked: list[Any]) -> None:
    options = ["--type", "variable", "--type", "rule", "--top-n", 5, "--min-score", 0]

    shown = cauce("resources", "search", "caudal", *options)
    unified = cauce("resources", "search", "caudal", "--json")

    assert asked == [
        (
            "/api/web/embeddings/search",
            {"query": "caudal", "entityTypes": ["variable", "rule"], "topN": 5, "minScore": 0.0},
        ),
        ("/api/web/embeddings/search", {"query": "caudal"}),
    ]
    assert shown.stdout.startswith("1. Caudal, score 0.875  variable 7\n    # Caudal\n")
    assert lines(unified)[0]["results"] == [FOUND]


def test_a_sweep_prints_what_it_found(asked: list[Any]) -> None:
    shown, as_json = cauce("sweep"), cauce("sweep", "--json")

    assert [path for path, _ in asked] == ["/sweep", "/sweep"]
    assert shown.stdout == "file\tMISSING\t1\nvariable\tSTALE\t2\n3 marked for repair\n"
    assert lines(as_json) == [SWEPT]


def test_a_sweep_needs_the_address_of_the_embeddings_service(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAUCE_EMBEDDINGS_URL")
    result = cauce("sweep", "--json")
    assert (result.exit_code, lines(result)[0]["error"]["code"]) == (1, "STACK_NOT_FOUND")
