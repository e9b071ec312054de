"""What the embeddings service does by the clock: the sweep that repairs lost events, and the queue's figures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from opentelemetry import metrics

from services.chassis.observability import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY
from services.embeddings.application.ports import FileMirror

_log = get_logger(__name__)
_meter = metrics.get_meter("cauce")
_depth = _meter.create_gauge("cauce.queue.depth", unit="{file}", description="Files waiting or worked on")
_oldest = _meter.create_gauge("cauce.queue.oldest.age", unit="s", description="Age of the oldest such file")
_repaired = _meter.create_counter("cauce.sweep.repaired", unit="{file}", description="Files marked by the sweep")


async def every(seconds: float, name: str, action: Callable[[], Awaitable[None]]) -> None:
    """Run the action now and every so often until cancelled; a fault of the database is said and waited out."""
    while True:
        try:
            await action()
        except DATABASE_AWAY as error:
            _log.warning("scheduled_action_failed", action=name, error=f"{type(error).__name__}: {error}")
        await asyncio.sleep(seconds)


async def sweep(mirror: FileMirror) -> None:
    """Repair, and count what was repaired by reason."""
    found = await mirror.sweep()
    for reason, count in found.items():
        _repaired.add(count, {"reason": reason})
    if found:
        _log.info("sweep_repaired", **found)


async def measure(mirror: FileMirror) -> None:
    """Show the queue's depth and oldest age by state."""
    depths = {depth.status: depth for depth in await mirror.measure()}
    for status in ("PENDING", "PROCESSING"):
        depth = depths.get(status)
        _depth.set(depth.files if depth else 0, {"status": status})
        _oldest.set(depth.oldest_age if depth else 0.0, {"status": status})
