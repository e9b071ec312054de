"""One trace from the upload to the last vector, and one for a search, as a collector receives them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.conftest import CauceStack
from tests.support.otlp import Collector, Span

PATIENCE = 60.0


def eventually(found: Callable[[], list[Span]], wanted: set[str]) -> list[Span]:
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
    spans = eventually(lambda: collector.trace_of("embed file"), steps)

    assert {span.service for span in spans} >= {"cauce-files", "cauce-embeddings", "cauce-worker"}
    (root,) = [span for span in spans if not span.parent_id]
    assert root.service == "cauce-files"


def test_a_search_is_one_trace(stack: CauceStack, collector: Collector) -> None:
    assert stack.cauce("search", "¿cada cuánto se calibra el caudalímetro?").status == 0

    name = "POST /api/web/embeddings/files/search"
    spans = eventually(lambda: collector.trace_of(name), {name})

    (root,) = [span for span in spans if not span.parent_id]
    assert (root.service, root.name) == ("cauce-search", name)
    assert len(spans) > 1
