"""Structured logs: one JSON object a line on standard error, with the trace and span id where there is one."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog
from opentelemetry import trace


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger that may be made at import time; it is configured by ``setup``."""
    return structlog.stdlib.get_logger(name)


def _add_trace(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def configure_logs(service: str) -> None:
    """Send the project's and the libraries' records through one JSON renderer."""
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _named(service),
                structlog.processors.JSONRenderer(ensure_ascii=False),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    # aiokafka says dozens of times a second that a broker is away; the relay and the intake say it once a try.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    for noisy in ("faststream", "httpx2", "google_genai"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _named(service: str) -> structlog.types.Processor:
    def add_service(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["service"] = service
        return event

    return add_service
