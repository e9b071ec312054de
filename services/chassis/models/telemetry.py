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

_waiting = _meter.create_up_down_counter(
    "cauce.model.waiting", unit="{call}", description="Calls that wait until the quota lets them start"
)
_wait = _meter.create_histogram("cauce.model.wait.duration", unit="s", description="How long a call waited for that")
_refused = _meter.create_counter(
    "cauce.model.refused", unit="{call}", description="Calls that the provider answered with a wish to wait"
)


@contextmanager
def observed_wait(model: str) -> Iterator[None]:
    """Count a call that waits for its quota, and how long it does."""
    _waiting.add(1, {"model": model})
    started = time.perf_counter()
    try:
        yield
    finally:
        _waiting.add(-1, {"model": model})
        _wait.record(time.perf_counter() - started, {"model": model})


def count_refused(model: str) -> None:
    """Add to the calls that the provider asked to wait."""
    _refused.add(1, {"model": model})


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
