"""One trace from the upload to the last vector, and one for a search, as a collector receives them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.conftest import CauceStack
from tests.support.otlp import Collector, Span


def eventually(found: Callable[[], list[Span]], wanted: set[str]) -> list[Span]:
    deadline = time.monotonic() + 30
    while not wanted <= {span.name for span in found()}:
        assert time.monotonic() < deadline, f"missing {wanted - {span.name for span in found()}}"
        time.sleep(0.1)
    return found()


def test_an_upload_is_one_trace_through_outbox_broker_and_worker(
    stack: CauceStack, collector: Collector, tmp_path: Path
) -> None:
    note = tmp_path / "rastro.txt"
    note.write_text("El caudalímetro P-4711/B se calibra cada seis meses.")
    (line,) = stack.cauce("ingest", note, "--wait").lines
    assert line["status"] == "COMPLETED"

    steps = {"publish files.events", "process FileUploaded", "embed file", "extract", "embed", "replace chunks"}
    spans = eventually(lambda: collector.trace_of("embed file"), steps)

    assert {span.service for span in spans} >= {"cauce-files", "cauce-embeddings", "cauce-worker"}
    (root,) = [span for span in spans if not span.parent_id]
    assert root.service == "cauce-files"
    known = {span.span_id for span in spans}
    assert all(span.parent_id in known for span in spans if span.parent_id)


def test_a_search_is_one_trace(stack: CauceStack, collector: Collector) -> None:
    assert stack.cauce("search", "¿cada cuánto se calibra el caudalímetro?").status == 0

    spans = eventually(
        lambda: [span for span in collector.spans if span.service == "cauce-search"],
        {"POST /api/web/embeddings/files/search"},
    )

    root = next(span for span in spans if span.name == "POST /api/web/embeddings/files/search")
    assert len([span for span in spans if span.trace_id == root.trace_id]) > 1
