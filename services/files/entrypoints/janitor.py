"""Runs the upkeep by the clock, for as long as the service runs."""

from __future__ import annotations

import asyncio

from opentelemetry import metrics

from services.chassis.kernel.errors import UnavailableError
from services.chassis.observability import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY, schema_missing
from services.files.application.collect_garbage import CollectGarbage

PASSING: tuple[type[Exception], ...] = (UnavailableError, *DATABASE_AWAY)

_log = get_logger(__name__)
_meter = metrics.get_meter("cauce")
_ended = _meter.create_counter("cauce.files.uploads.ended", unit="{file}", description="Uploads that stopped")
_deleted = _meter.create_counter("cauce.files.objects.deleted", unit="{object}", description="Objects deleted")


async def run_janitor(collect: CollectGarbage, every_seconds: float) -> None:
    """Do what is due, again and again until cancelled. Whatever fails is said, and tried again the next time."""
    while True:
        try:
            ended, deleted = await collect()
            _ended.add(ended)
            _deleted.add(deleted)
            if ended or deleted:
                _log.info("upkeep_done", uploads_ended=ended, objects_deleted=deleted)
        except Exception as error:  # noqa: BLE001 - nothing else does what is due
            known = isinstance(error, PASSING) or schema_missing(error) is not None
            _log.warning("upkeep_interrupted", error=f"{type(error).__name__}: {error}", exc_info=not known)
        await asyncio.sleep(every_seconds)
