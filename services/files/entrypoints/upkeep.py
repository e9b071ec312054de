"""The upkeep that the service does by the clock."""

from __future__ import annotations

from opentelemetry import metrics

from services.chassis.observability import get_logger
from services.files.application.collect_garbage import CollectGarbage

_log = get_logger(__name__)
_meter = metrics.get_meter("cauce")
_ended = _meter.create_counter("cauce.files.uploads.ended", unit="{file}", description="Uploads that stopped")
_deleted = _meter.create_counter("cauce.files.objects.deleted", unit="{object}", description="Objects deleted")


async def keep_up(collect: CollectGarbage) -> None:
    """Do what is due, and count it."""
    ended, deleted = await collect()
    _ended.add(ended)
    _deleted.add(deleted)
    if ended or deleted:
        _log.info("upkeep_done", uploads_ended=ended, objects_deleted=deleted)
