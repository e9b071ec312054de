"""The command line against a server that behaves like the services, over real sockets."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.ingest import UPLOADS_AT_ONCE
from cli.main import app
from cli.render import LINE_FIELDS
from tests.support.services_server import PASSAGE, ServicesServer, services_server

COMMAND = (sys.executable, "-P", "-m", "cli.main")


@pytest.fixture
def server() -> Iterator[ServicesServer]:
    with services_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stack of the developer's own is found by accident."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("CAUCE_")]:
        monkeypatch.delenv(name)


def cauce(server: ServicesServer, *arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments), "--url", server.url])


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_ingest_prints_a_line_for_each_file_with_its_end(server: ServicesServer, tmp_path: Path) -> None:
    (tmp_path / "manual.pdf").write_bytes(b"x" * 3_000_000)
    result = cauce(server, "ingest", tmp_path / "manual.pdf", "--wait", "--json")
    assert result.exit_code == 0
    assert lines(result) == [
        {
            "file_id": 1,
            "name": "manual.pdf",
            "status": "COMPLETED",
            "outcome": "INDEXED",
            "pages": 12,
            "chunks": 34,
            "error_code": None,
            "error_message": None,
        }
    ]
    assert result.stderr == ""
    assert server.files[1]["size_bytes"] == 3_000_000


def test_ingest_without_waiting_prints_the_stored_file(server: ServicesServer, tmp_path: Path) -> None:
    (tmp_path / "slow.pdf").write_bytes(b"x")
    result = cauce(server, "ingest", tmp_path / "slow.pdf", "--json")
    assert result.exit_code == 0
    assert lines(result)[0]["status"] == "PENDING"


def test_one_bad_path_stops_no_other_and_shows_in_the_exit_status(server: ServicesServer, tmp_path: Path) -> None:
    for name in ("corrupt.pdf", "dropped.bin", "fine.txt", "huge.bin"):
        (tmp_path / name).write_bytes(b"x" * 2_000_000)
    result = cauce(server, "ingest", "absent.pdf", tmp_path, "--wait", "--json")
    ends = {line["name"]: (line["status"], line["error_code"]) for line in lines(result)}
    assert ends == {
        "absent.pdf": ("FAILED", "PATH_NOT_FOUND"),
        "corrupt.pdf": ("FAILED", "CORRUPT"),
        "dropped.bin": ("FAILED", "UPLOAD_INCOMPLETE"),
        "fine.txt": ("COMPLETED", None),
        "huge.bin": ("FAILED", "FILE_TOO_LARGE"),
    }
    assert all(tuple(line) == LINE_FIELDS for line in lines(result))
    assert result.exit_code == 1


def test_uploads_at_once_are_bounded(server: ServicesServer, tmp_path: Path) -> None:
    server.together = UPLOADS_AT_ONCE
    for number in range(20):
        (tmp_path / f"{number:02}.txt").write_bytes(b"x" * 500_000)
    result = cauce(server, "ingest", tmp_path, "--wait", "--json")
    assert len(lines(result)) == 20
    assert server.most_uploading == UPLOADS_AT_ONCE


def test_a_file_that_got_no_answer_is_sent_again_and_is_one_file(server: ServicesServer, tmp_path: Path) -> None:
    server.lost_answers = server.refusals = 1
    (tmp_path / "manual.pdf").write_bytes(b"x")
    result = cauce(server, "ingest", tmp_path / "manual.pdf", "--wait", "--json")
    assert lines(result)[0]["status"] == "COMPLETED"
    assert (result.exit_code, len(server.files)) == (0, 1)


def test_a_stream_that_breaks_is_taken_up_again(server: ServicesServer, tmp_path: Path) -> None:
    server.broken_streams = 1
    (tmp_path / "manual.pdf").write_bytes(b"x")
    result = cauce(server, "ingest", tmp_path / "manual.pdf", "--wait", "--json")
    assert lines(result)[0]["status"] == "COMPLETED"


def test_waiting_ends_at_the_timeout_with_what_is_known(server: ServicesServer, tmp_path: Path) -> None:
    (tmp_path / "slow.pdf").write_bytes(b"x")
    result = cauce(server, "ingest", tmp_path / "slow.pdf", "--wait", "--timeout", 3, "--json")
    assert (lines(result)[0]["status"], lines(result)[0]["error_code"]) == ("PROCESSING", "WAIT_TIMEOUT")
    assert result.exit_code == 1


def test_what_is_left_out_of_a_folder_is_said(server: ServicesServer, tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    result = cauce(server, "ingest", tmp_path, "--json")
    assert [line["name"] for line in lines(result)] == ["a.txt"]
    assert ".hidden: hidden" in result.stderr
    assert "loop: seen before" in result.stderr


def test_a_name_that_is_not_unicode_is_sent_and_printed(server: ServicesServer, tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xe9.txt")).write_text("x")
    result = cauce(server, "ingest", tmp_path, "--json")
    assert lines(result)[0]["name"] == "a\udce9.txt"
    assert result.exit_code == 0


def test_a_plain_line_says_how_a_file_ended(server: ServicesServer, tmp_path: Path) -> None:
    for name in ("corrupt.pdf", "manual.pdf", "scan.pdf"):
        (tmp_path / name).write_bytes(b"x")
    result = cauce(server, "ingest", tmp_path, "--wait")
    assert sorted(line.split(maxsplit=2)[2] for line in result.stdout.splitlines()) == [
        "corrupt.pdf  CORRUPT: the document cannot be read",
        "manual.pdf  12 pages, 34 chunks",
        "scan.pdf  empty: NO_TEXT",
    ]


def test_status_lists_every_file_over_all_pages(server: ServicesServer) -> None:
    for number in range(5):
        server.add(f"{number}.txt")
    result = cauce(server, "status", "--json")
    assert [line["file_id"] for line in lines(result)] == [5, 4, 3, 2, 1]
    assert len(cauce(server, "status").stdout.splitlines()) == 5


def test_status_of_one_file_is_the_services_answer(server: ServicesServer) -> None:
    file = server.add("manual.pdf", status="COMPLETED", chunks=3)
    assert lines(cauce(server, "status", 1, "--json")) == [file]
    assert "chunks         3" in cauce(server, "status", 1).stdout


def test_delete_removes_the_file(server: ServicesServer) -> None:
    server.add("manual.pdf")
    assert lines(cauce(server, "delete", 1, "--json")) == [{"file_id": 1, "deleted": True}]
    assert server.files == {}


def test_retry_can_wait_for_the_new_end(server: ServicesServer) -> None:
    server.add("manual.pdf", status="FAILED", error_code="CORRUPT", error_message="x")
    result = cauce(server, "retry", 1, "--wait", "--json")
    assert (result.exit_code, lines(result)[0]["status"]) == (0, "COMPLETED")


def test_retry_that_fails_again_is_a_failure(server: ServicesServer) -> None:
    server.add("corrupt.pdf", status="FAILED", error_code="CORRUPT", error_message="x")
    assert cauce(server, "retry", 1, "--wait").exit_code == 1


def test_search_prints_the_answer_in_one_line(server: ServicesServer) -> None:
    arguments = ("search", "¿Cuándo abre la válvula?", "--top-n", 3, "--min-score", 0, "--file-id", 1)
    result = cauce(server, *arguments, "--json")
    assert [line["results"] for line in lines(result)] == [[PASSAGE]]
    assert server.searches == [{"query": "¿Cuándo abre la válvula?", "topN": 3, "minScore": 0.0, "fileIds": [1]}]


def test_every_filter_of_a_search_has_an_option(server: ServicesServer) -> None:
    options = ("--media-type", "text/plain", "--language", "es", "--language", "en", "--after", "AAAA")
    moments = ("--created-from", "2026-01-01T00:00Z", "--created-before", "2026-02-01T00:00Z")

    cauce(server, "search", "nada", "--mode", "lexical", *options, *moments)

    assert server.searches == [
        {
            "query": "nada",
            "mode": "lexical",
            "after": "AAAA",
            "mediaTypes": ["text/plain"],
            "languages": ["es", "en"],
            "createdFrom": "2026-01-01T00:00Z",
            "createdBefore": "2026-02-01T00:00Z",
        }
    ]


def test_a_context_is_printed_with_what_was_left_out_as_a_note(server: ServicesServer) -> None:
    options = ("--budget", 100, "--type", "rule", "--id", 4, "--chunks-per-file", 2, "--history", "¿Qué es?")
    result = cauce(server, "context", "válvula", *options)

    parameters = {"budget": 100, "chunksPerFile": 2, "entityTypes": ["rule"], "entityIds": [4]}
    assert server.searches == [{"query": "válvula", **parameters, "rewrite": {"history": [{"text": "¿Qué es?"}]}}]
    assert result.stdout == "[1] manual.pdf, page 2\nLa válvula abre a 11,5 bar.\n"
    assert "rewrite unavailable: no model is set" in result.stderr
    assert "20 of 100 tokens; left out: 3 budget, 1 per file" in result.stderr


def test_search_leaves_defaults_to_the_service(server: ServicesServer) -> None:
    assert cauce(server, "search", "nada").stdout == ""
    assert server.searches == [{"query": "nada"}]


def test_a_passage_is_printed_with_file_pages_and_score(server: ServicesServer) -> None:
    shown = cauce(server, "search", "válvula").stdout
    assert "manual.pdf, pages 2-3, score 0.875" in shown
    assert "    La válvula abre a 11,5 bar." in shown


def test_chunks_follows_the_pages_of_the_answer(server: ServicesServer) -> None:
    server.add("manual.pdf")
    result = cauce(server, "chunks", 1, "--pages", "2-3", "--json")
    (answer,) = lines(result)
    assert [chunk["position"] for chunk in answer["chunks"]] == [0, 1, 2, 3, 4]
    assert [query["pages"] for query in server.chunk_queries] == ["2-3"] * 3
    assert "manual.pdf, page 2  position 4" in cauce(server, "chunks", 1).stdout


def test_a_problem_of_the_service_is_shown_with_its_code_and_remedy(server: ServicesServer) -> None:
    result = cauce(server, "search", " ")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == "INVALID_QUERY: the query is empty (query); ask something\n"


def test_a_problem_is_a_json_line_for_a_program(server: ServicesServer) -> None:
    result = cauce(server, "status", 7, "--json")
    assert result.exit_code == 1
    assert lines(result) == [
        {
            "error": {
                "code": "FILE_NOT_FOUND",
                "detail": "there is no file 7",
                "where": "fileId",
                "remedy": None,
            }
        }
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("search",),
        ("status", "seven"),
        ("ingest", "a", "--wait", "--timeout", "-1"),
        ("ingest", "a", "--timeout", "1"),
        ("search", "a", "--top", "1"),
        ("nonsense",),
    ],
)
def test_a_usage_error_exits_with_2(arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, list(arguments)).exit_code == 2


def test_a_stack_that_is_away_is_said_so(server: ServicesServer, tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text(json.dumps({"files_url": "http://127.0.0.1:9", "search_url": server.url}))
    result = CliRunner().invoke(app, ["status", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("SERVICE_UNREACHABLE: ")


def test_no_stack_at_all_says_what_to_do() -> None:
    result = CliRunner().invoke(app, ["status", "--json"])
    assert result.exit_code == 1
    (answer,) = lines(result)
    assert answer["error"]["code"] == "STACK_NOT_FOUND"
    assert "cauce up" in answer["error"]["remedy"]


def test_a_reader_that_goes_away_ends_the_command_quietly(server: ServicesServer, tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.txt").write_bytes(b"x")
    command = [*COMMAND, "ingest", str(tmp_path), "--json", "--url", server.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_progress_is_shown_in_a_terminal_and_keeps_off_json(server: ServicesServer, tmp_path: Path) -> None:
    (tmp_path / "manual.pdf").write_bytes(b"x" * 2_000_000)
    controller, terminal = pty.openpty()
    command = [*COMMAND, "ingest", str(tmp_path), "--wait", "--json", "--url", server.url]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    shown = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, env=environment) as process:
        os.close(terminal)
        with suppress(OSError):  # as a terminal ends that nobody writes to any more
            while said := os.read(controller, 1 << 20):
                shown += said
        assert process.stdout is not None
        done = json.loads(process.stdout.read())
    os.close(controller)
    assert (process.returncode, done["status"]) == (0, "COMPLETED")
    assert b"manual.pdf" in shown
