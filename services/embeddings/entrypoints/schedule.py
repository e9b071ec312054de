"""What the embeddings service does by the clock: the sweep that repairs lost events, and the queues' figures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from opentelemetry import metrics

from services.chassis.observability import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY
from services.embeddings.application.ports import FileMirror
from services.embeddings.application.resource_ports import ResourceMirror

_log = get_logger(__name__)
_meter = metrics.get_meter("cauce")
_depth = _meter.create_gauge("cauce.queue.depth", unit="{item}", description="Files and resources waiting or worked on")
_oldest = _meter.create_gauge("cauce.queue.oldest.age", unit="s", description="Age of the oldest such wish")
_repaired = _meter.create_counter("cauce.sweep.repaired", unit="{item}", description="What the sweep repaired")


async def every(seconds: float, name: str, action: Callable[[], Awaitable[object]]) -> None:
    """Run the action now and every so often until cancelled; a fault of the database is said and waited out."""
    while True:
        try:
            await action()
        except DATABASE_AWAY as error:
            _log.warning("scheduled_action_failed", action=name, error=f"{type(error).__name__}: {error}")
        await asyncio.sleep(seconds)


async def sweep(files: FileMirror, resources: ResourceMirror) -> dict[str, dict[str, int]]:
    """Repair, and count what was repaired: by kind (``file`` or a type of resource), then by reason."""
    found = {"file": await files.sweep(), **await resources.sweep()}
    repaired = {kind: dict(reasons) for kind, reasons in found.items() if reasons}
    for kind, reasons in repaired.items():
        for reason, count in reasons.items():
            _repaired.add(count, {"kind": kind, "reason": reason})
    if repaired:
        _log.info("sweep_repaired", counts=repaired)
    return repaired


async def measure(files: FileMirror, resources: ResourceMirror) -> None:
    """Show each queue's depth and oldest age by state."""
    for kind, mirror in (("file", files), ("resource", resources)):
        depths = {depth.status: depth for depth in await mirror.measure()}
        for status in ("PENDING", "PROCESSING"):
            depth = depths.get(status)
            attributes = {"kind": kind, "status": status}
            _depth.set(depth.depth if depth else 0, attributes)
            _oldest.set(depth.oldest_age if depth else 0.0, attributes)
