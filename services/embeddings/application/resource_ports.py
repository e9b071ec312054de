"""The ports of the embeddings service for resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from contracts.events.envelope import Event
from services.chassis.models.space import Vector
from services.embeddings.application.ports import QueueDepth
from services.embeddings.application.process_claim import LeasedWork
from services.embeddings.domain.resource_work import ClaimedBatch, Failure, ResourceContext, Source


@dataclass(frozen=True, slots=True)
class EmbeddedResource:
    """A resource with its text and its vector (float32, 768 numbers, unit length)."""

    context: ResourceContext
    text: str
    text_hash: bytes
    vector: Vector


@dataclass(slots=True)
class BatchResult:
    """How the reconcile of each resource of a batch ended.

    Attributes:
        recipe: the version of the recipe that the texts were made by.
        space_id: the space of the vectors.
        embedded: those with a new vector.
        renamed: those whose stored vector still holds, under another name or tenant.
        unchanged: those whose stored vector still holds.
        failed: those that cannot be embedded as they are, with the reason.
        gone: ids of those that the source of record has no more.
        sources: what each resource that is not gone has read, by its id.
    """

    recipe: str
    space_id: int
    embedded: list[EmbeddedResource] = field(default_factory=list)
    renamed: list[ResourceContext] = field(default_factory=list)
    unchanged: list[ResourceContext] = field(default_factory=list)
    failed: list[tuple[ResourceContext, Failure]] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    sources: Mapping[int, Collection[Source]] = field(default_factory=dict)


class ResourceWork(LeasedWork[ClaimedBatch], Protocol):
    """The mirror of resources as a work queue. Every write names the lease it is made under."""

    async def claim(self, limit: int, *, large: int | None = None) -> list[ClaimedBatch]:
        """Take up to ``limit`` batches that want work, each of one type under a new lease."""

    async def read(self, entity_type: str, entity_ids: Sequence[int]) -> list[ResourceContext]:
        """What these resources are now; one that is gone is left out."""

    async def remember(self, batch: ClaimedBatch, sources: Mapping[int, Collection[Source]]) -> list[int]:
        """Note what each resource, by its id, has read. Return the ids of those that read something new."""

    async def settle(self, batch: ClaimedBatch, result: BatchResult) -> Collection[int]:
        """Write the result and announce it, in one transaction; where the lease is lost nothing is written.

        Returns:
            The ids of the resources that were settled.
        """


@dataclass(frozen=True, slots=True)
class Fan:
    """How many resources are made from a resource that changed, and so were marked with it."""

    source: Source
    readers: int


class ResourceMirror(Protocol):
    """The mirror of resources as the intake and the sweep see it."""

    async def mark(self, events: Sequence[Event]) -> list[Fan]:
        """Take a batch of catalogue events in one transaction, each with all that is made from what changed.

        The repetition of a change changes nothing, that of a deletion, or their order, nothing in the end. Returns what
        had readers.
        """

    async def sweep(self) -> dict[str, Counter[str]]:
        """Repair what events did not bring. Return counts by reason, by type; nothing for a type that is well."""

    async def measure(self) -> list[QueueDepth]:
        """The depth and oldest age of the queue by state."""
