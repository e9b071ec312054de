"""What happens on events of other contexts: the mirrors note what wants attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry import metrics

from contracts.events import files
from contracts.events.envelope import Event
from services.chassis.observability import get_logger
from services.embeddings.application.ports import FileMirror
from services.embeddings.application.resource_ports import ResourceMirror

WIDE_FAN = 1_000
"""A change that is shown in more resources than this is worth a line in the log."""

_log = get_logger(__name__)
_fan = metrics.get_meter("cauce").create_histogram(
    "cauce.fan",
    unit="{resource}",
    description="Resources made from one that changed, and marked with it",
    explicit_bucket_boundaries_advisory=[1, 10, 100, 1_000, 10_000, 100_000],
)


@dataclass(frozen=True, slots=True)
class MarkOnEvents:
    """The intake's handler. Each mirror takes its events in one transaction."""

    files: FileMirror
    resources: ResourceMirror

    async def __call__(self, events: Sequence[Event]) -> None:
        """Mark what the events speak of. They may come again, and in any order."""
        of_files = [event for event in events if event.type.context == files.CONTEXT]
        of_resources = [event for event in events if event.type.context != files.CONTEXT]
        if of_files:
            await self.files.mark(of_files)
        if of_resources:
            await self._mark_resources(of_resources)

    async def _mark_resources(self, events: Sequence[Event]) -> None:
        for fan in await self.resources.mark(events):
            _fan.record(fan.readers, {"type": fan.source.entity_type})
            if fan.readers > WIDE_FAN:
                _log.warning(
                    "wide_fan", type=fan.source.entity_type, entity_id=fan.source.entity_id, readers=fan.readers
                )
