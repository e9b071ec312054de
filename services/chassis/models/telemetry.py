"""Spans and metrics of calls to models, the same for every provider."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import metrics, trace

_tracer = trace.get_tracer("cauce")
_meter = metrics.get_meter("cauce")
_tokens = _meter.create_counter("cauce.model.tokens", unit="{token}", description="Tokens that models read and wrote")
_duration = _meter.create_histogram(
    "cauce.model.call.duration", unit="s", description="Duration of one call to a model, without waits for quota"
)


@contextmanager
def observed_call(provider: str, model: str, operation: str) -> Iterator[None]:
    """A span and a duration around one call; ``outcome`` is ``ok`` or the name of the error."""
    attributes = {"provider": provider, "model": model, "operation": operation}
    outcome = "ok"
    started = time.perf_counter()
    with _tracer.start_as_current_span(f"{operation} {model}", attributes=attributes):
        try:
            yield
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            _duration.record(time.perf_counter() - started, {**attributes, "outcome": outcome})


def count_tokens(provider: str, model: str, operation: str, tokens: int) -> None:
    """Add to the tokens used."""
    _tokens.add(tokens, {"provider": provider, "model": model, "operation": operation})
