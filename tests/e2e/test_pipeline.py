"""A document in, passages with their pages out, and the traces of it: the embedded stack and its command."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from deploy.samples import POLICY, SCAN, SHREDDING_PAGE, write_samples
from tests.e2e.conftest import CauceStack
from tests.support.otlp import Collector, Span

PATIENCE = 240.0
SPANISH_QUESTION = "¿Cómo se destruyen los documentos en papel con datos personales?"


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the limit is generous, and only reached by a fault."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ingested(stack: CauceStack, path: Path) -> dict[str, Any]:
    (line,) = stack.cauce("ingest", path, "--wait").lines
    assert line["status"] == "COMPLETED", line
    return line


def found(stack: CauceStack, query: str, *options: object) -> list[dict[str, Any]]:
    (answer,) = stack.cauce("search", query, *options).lines
    results: list[dict[str, Any]] = answer["results"]
    return results


def status_now(stack: CauceStack, file_id: int) -> str:
    """Asked over HTTP, because a command takes longer to start than a short file to be processed."""
    file = httpx2.get(f"{stack.state['files_url']}/files/{file_id}", timeout=PATIENCE).json()
    status: str = file["status"]
    return status


@pytest.fixture(scope="session")
def documents(stack: CauceStack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """An English policy, a scanned page and a broken file, ingested as one folder: the line of each by its name."""
    folder = tmp_path_factory.mktemp("documents")
    written = tmp_path_factory.mktemp("samples")
    for sample in write_samples(written):
        if sample.name in {POLICY, SCAN}:
            sample.rename(folder / sample.name)
    (folder / "broken.pdf").write_bytes((folder / POLICY).read_bytes()[:700])
    outcome = stack.cauce("ingest", folder, "--wait")
    assert outcome.status == 1
    return {line["name"]: line for line in outcome.lines}


def test_documents_become_passages(documents: dict[str, dict[str, Any]]) -> None:
    assert {name: (line["status"], line["outcome"], line["pages"]) for name, line in documents.items()} == {
        POLICY: ("COMPLETED", "INDEXED", 3),
        SCAN: ("COMPLETED", "INDEXED", 1),
        "broken.pdf": ("FAILED", None, None),
    }
    assert documents["broken.pdf"]["error_code"] == "CORRUPT"
    assert documents[POLICY]["chunks"] >= 3


def test_a_spanish_question_finds_the_english_passage(stack: CauceStack, documents: dict[str, dict[str, Any]]) -> None:
    best, *_ = found(stack, SPANISH_QUESTION, "--top-n", 3)
    assert best["file_id"] == documents[POLICY]["file_id"]
    assert best["page_from"] <= SHREDDING_PAGE <= best["page_to"]
    assert "shredded on the premises" in " ".join(best["text"].split())


def test_an_operator_may_sweep_and_a_healthy_stack_has_nothing_to_mend(stack: CauceStack) -> None:
    assert stack.cauce("sweep").lines == [{"total": 0, "counts": {}}]


def test_a_scanned_page_is_found_by_what_its_picture_says(
    stack: CauceStack, documents: dict[str, dict[str, Any]]
) -> None:
    best, *_ = found(stack, "¿Por qué salía agua en las pistolas de pintura?")
    assert best["file_name"] == SCAN
    assert "[Imagen:" in best["text"]
    assert "Membrana rota" in best["text"]


def test_a_search_can_stay_in_one_file_and_above_a_score(
    stack: CauceStack, documents: dict[str, dict[str, Any]]
) -> None:
    only = documents[SCAN]["file_id"]
    assert {passage["file_id"] for passage in found(stack, SPANISH_QUESTION, "--file-id", only)} == {only}
    assert found(stack, SPANISH_QUESTION, "--min-score", 1) == []


def test_pages_are_read_in_order(stack: CauceStack, documents: dict[str, dict[str, Any]]) -> None:
    file_id = documents[POLICY]["file_id"]
    (answer,) = stack.cauce("chunks", file_id, "--pages", "2-3").lines
    assert all(chunk["page_to"] >= 2 for chunk in answer["chunks"])
    positions = [chunk["position"] for chunk in answer["chunks"]]
    assert positions == list(range(positions[0], documents[POLICY]["chunks"]))


def test_status_shows_every_file(stack: CauceStack, documents: dict[str, dict[str, Any]]) -> None:
    shown = {line["file_id"]: line["status"] for line in stack.cauce("status").lines}
    assert shown.items() >= {line["file_id"]: line["status"] for line in documents.values()}.items()


def test_a_retry_ends_as_before_and_doubles_nothing(stack: CauceStack, documents: dict[str, dict[str, Any]]) -> None:
    (line,) = stack.cauce("retry", documents[POLICY]["file_id"], "--wait").lines
    assert line == documents[POLICY]
    outcome = stack.cauce("retry", documents["broken.pdf"]["file_id"], "--wait")
    assert (outcome.status, outcome.lines[0]["error_code"]) == (1, "CORRUPT")


def test_a_deleted_file_is_found_no_more(stack: CauceStack, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("El faro de Punta Negra se enciende cuarenta minutos antes del ocaso.")
    file_id = ingested(stack, note)["file_id"]
    assert found(stack, "¿Cuándo se enciende el faro?")[0]["file_id"] == file_id
    assert stack.cauce("delete", file_id).status == 0
    until(lambda: all(it["file_id"] != file_id for it in found(stack, "¿Cuándo se enciende el faro?")))
    (answer,) = stack.cauce("chunks", file_id).lines
    assert answer["error"]["code"] == "FILE_NOT_FOUND"


@contextmanager
def without_writes(stack: CauceStack) -> Iterator[None]:
    """Whoever would write passages waits, so that no file is done however fast it is."""
    with asyncio.Runner() as runner:
        admin = runner.run(asyncpg.connect(stack.state["database_url"]))
        runner.run(admin.execute("BEGIN; LOCK TABLE module_embeddings_file_chunk IN SHARE MODE"))
        yield
        runner.run(admin.close())


def test_a_file_survives_the_death_of_its_worker(stack: CauceStack, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(
        "\n\n".join(f"Lote {n}: la cinta {n * 7} movió {n * 13} cajas por turno." * 8 for n in range(24))
    )
    with without_writes(stack):
        (line,) = stack.cauce("ingest", tmp_path / "long.txt").lines
        until(lambda: status_now(stack, line["file_id"]) == "PROCESSING")
        (worker,) = stack.state["processes"]["workers"]
        os.kill(worker, signal.SIGKILL)
    until(lambda: status_now(stack, line["file_id"]) == "COMPLETED")
    assert stack.state["processes"]["workers"] != [worker]
    assert "worker-1 was ended by SIGKILL" in stack.log


def test_what_was_ingested_survives_a_restart(stack: CauceStack, tmp_path: Path) -> None:
    note = tmp_path / "kept.txt"
    note.write_text("La contraseña de la caja fuerte la guarda la notaría de la calle Mayor.")
    file_id = ingested(stack, note)["file_id"]
    assert stack.stop() == 0
    assert stack.cauce("status").lines[0]["error"]["code"] == "STACK_NOT_FOUND"
    stack.start()
    assert found(stack, "¿Quién guarda la contraseña de la caja fuerte?")[0]["file_id"] == file_id


def traced(found: Callable[[], list[Span]], wanted: set[str]) -> list[Span]:
    """The spans, once those of these names are there and the parent of each: all processes send theirs by turns."""
    deadline = time.monotonic() + PATIENCE
    while True:
        spans = found()
        missing = wanted - {span.name for span in spans} | parents(spans) - {span.span_id for span in spans}
        if not missing:
            return spans
        assert time.monotonic() < deadline, f"missing {missing}"
        time.sleep(0.1)


def parents(spans: list[Span]) -> set[str]:
    return {span.parent_id for span in spans if span.parent_id}


def test_an_upload_is_one_trace_through_outbox_broker_and_worker(
    stack: CauceStack, collector: Collector, tmp_path: Path
) -> None:
    note = tmp_path / "rastro.txt"
    note.write_text("El caudalímetro P-4711/B se calibra cada seis meses.")
    (line,) = stack.cauce("ingest", note, "--wait").lines
    assert line["status"] == "COMPLETED"

    steps = {"publish files.events", "process FileUploaded", "embed file", "extract", "embed", "replace chunks"}
    spans = traced(lambda: collector.trace_of("embed file"), steps)

    assert {span.service for span in spans} >= {"cauce-files", "cauce-embeddings", "cauce-worker"}
    (root,) = [span for span in spans if not span.parent_id]
    assert root.service == "cauce-files"


def test_a_search_is_one_trace(stack: CauceStack, collector: Collector) -> None:
    assert stack.cauce("search", "¿cada cuánto se calibra el caudalímetro?").status == 0

    name = "POST /api/web/embeddings/files/search"
    spans = traced(lambda: collector.trace_of(name), {name})

    (root,) = [span for span in spans if not span.parent_id]
    assert (root.service, root.name) == ("cauce-search", name)
    assert len(spans) > 1
