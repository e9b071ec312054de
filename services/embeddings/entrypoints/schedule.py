"""What the embeddings service does by the clock: the sweep that repairs lost events, and the queues' figures."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import metrics

from services.chassis.observability import get_logger
from services.embeddings.application.ports import FileMirror
from services.embeddings.application.resource_ports import ResourceMirror
from services.embeddings.domain.errors import SweepIncompleteError

_log = get_logger(__name__)
_meter = metrics.get_meter("cauce")
_depth = _meter.create_gauge("cauce.queue.depth", unit="{item}", description="Files and resources waiting or worked on")
_oldest = _meter.create_gauge("cauce.queue.oldest.age", unit="s", description="Age of the oldest such wish")
_repaired = _meter.create_counter("cauce.sweep.repaired", unit="{item}", description="What the sweep repaired")


async def sweep(files: FileMirror, resources: ResourceMirror) -> dict[str, dict[str, int]]:
    """Repair, and count what was repaired: by kind (``file`` or a type of resource), then by reason.

    Raises:
        SweepIncompleteError: some types could not be looked at.
    """
    found = {"file": await files.sweep()}
    try:
        found |= await resources.sweep()
    except SweepIncompleteError as error:
        _observe({**found, **error.found})
        raise
    return _observe(found)


def _observe(found: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
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
