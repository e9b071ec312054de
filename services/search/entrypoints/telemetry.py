"""A span and metrics around a search, the same for every surface."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import TypeVar

from opentelemetry import metrics, trace

from services.search.domain.results import FileChunkSearchResult, ResourceSearchResult

Result = TypeVar("Result", FileChunkSearchResult, ResourceSearchResult)

_tracer = trace.get_tracer("cauce")
_meter = metrics.get_meter("cauce")
_duration = _meter.create_histogram("cauce.search.duration", unit="s", description="Duration of a search that answered")
_results = _meter.create_histogram("cauce.search.results", unit="{result}", description="Results of a search")


async def observed_search(over: str, search: Awaitable[Result]) -> Result:
    """Wait for the search over ``files`` or ``resources``; record what was executed, its duration and its results."""
    started = time.perf_counter()
    with _tracer.start_as_current_span(f"search {over}") as span:
        result = await search
        executed = result.executed
        attributes = {
            "over": over,
            "mode": executed.mode.value,
            "space": executed.space,
            "strategy": str(executed.strategy),
        }
        span.set_attributes(
            {
                **attributes,
                "results": len(result.results),
                "query_vector_cached": executed.query_vector_cached,
                "cached": executed.cached,
            }
        )
    _duration.record(time.perf_counter() - started, attributes)
    _results.record(len(result.results), attributes)
    return result
