"""A collector of traces: the receiving half of OTLP over HTTP, kept in memory."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """A finished span."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str


@dataclass
class Collector:
    """Spans as they come in."""

    endpoint: str
    spans: list[Span] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """The standard variables that make a process export here, soon."""
        return {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "200"}

    def trace_of(self, name: str) -> list[Span]:
        """The spans of the newest trace that has a span of this name."""
        found = [span.trace_id for span in self.spans if span.name == name]
        return [span for span in self.spans if found and span.trace_id == found[-1]]


@contextmanager
def running_collector() -> Iterator[Collector]:
    """A collector on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.spans += _spans(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}/v1/traces")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        names = {one.key: one.value.string_value for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    names["service.name"], span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                )
