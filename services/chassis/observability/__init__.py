"""Traces, metrics and structured logs.

Nothing is exported by default; the standard ``OTEL_EXPORTER_OTLP_*`` variables turn export on. Metrics can always be
scraped at ``/metrics``.
"""

from __future__ import annotations

import logging
import os
import threading

from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from services.chassis.observability.logs import configure_logs, get_logger

__all__ = ["flush", "get_logger", "setup"]

# From a look-up to a file that waits for its turn; the SDK's own buckets are meant for milliseconds.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800)
FLUSH_SECONDS = 1.0
"""A collector that does not answer holds up the end of a process no longer than this."""


def setup(service: str) -> None:
    """Configure logs, traces and metrics for this process. Call once, from ``__main__``."""
    configure_logs(service)
    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME") or f"cauce-{service}"})
    tracer_provider = TracerProvider(resource=resource)
    readers: list[MetricReader] = [PrometheusMetricReader()]
    if _exports("TRACES"):
        tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    if _exports("METRICS"):
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    trace.set_tracer_provider(tracer_provider)
    metrics.set_meter_provider(
        MeterProvider(
            resource=resource,
            metric_readers=readers,
            views=[
                View(
                    instrument_type=Histogram,
                    instrument_unit="s",
                    aggregation=ExplicitBucketHistogramAggregation(SECONDS),
                )
            ],
        )
    )


def flush() -> None:
    """Send what is gathered, for as long as ``FLUSH_SECONDS``: for a process that ends as soon as this returns."""
    flushing = threading.Thread(target=_flush, daemon=True)
    flushing.start()
    flushing.join(FLUSH_SECONDS)
    logging.shutdown()


def _flush() -> None:
    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
        if isinstance(provider, (TracerProvider, MeterProvider)):
            provider.force_flush()


def _exports(signal: str) -> bool:
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return os.environ.get(f"OTEL_{signal}_EXPORTER") != "none" and any(os.environ.get(name) for name in names)
