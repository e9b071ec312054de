"""The lifecycle of a resource in the embeddings service: PENDING, PROCESSING, then COMPLETED or FAILED."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class Source(NamedTuple):
    """A resource that another one's text was made from. It need not exist."""

    entity_type: str
    entity_id: int


@dataclass(frozen=True, slots=True)
class ClaimedResource:
    """A resource of a claimed batch.

    Attributes:
        attempts: how many claims of this wish there were, this one included.
        requested_at: when the oldest change happened that this reconcile will show.
        traceparent: the trace that asked.
    """

    entity_id: int
    attempts: int
    requested_at: datetime
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimedBatch:
    """Resources of one type under one lease, whose token fences every write."""

    entity_type: str
    lease_token: UUID
    resources: tuple[ClaimedResource, ...]

    @property
    def entity_ids(self) -> list[int]:
        """The ids, in the order of the claim."""
        return [resource.entity_id for resource in self.resources]

    @property
    def attempts(self) -> int:
        """The most attempts that a resource of the batch had."""
        return max(resource.attempts for resource in self.resources)

    @property
    def is_gone(self) -> bool:
        """Always false: which of them are gone is known only when they are read."""
        return False

    @property
    def is_large(self) -> bool:
        """Always false: batches are bounded."""
        return False


@dataclass(frozen=True, slots=True)
class StoredText:
    """What the index has of a resource: the hash of the text that its vector was made of, and the vector's space.

    The tenant is None where the vector's and that of the words differ.
    """

    tenant_id: str | None
    name: str
    text_hash: bytes
    space_id: int


@dataclass(frozen=True, slots=True)
class ResourceContext:
    """What a resource is now.

    Attributes:
        revision: of the source of record, as read; None where the context has none, which is a fault of it.
        reads: what the row looked at, each as ``type:id``.
        values: all columns of the context view.
        stored: what the index has of it, None where it has nothing.
    """

    entity_id: int
    tenant_id: str
    name: str
    revision: int | None
    reads: Sequence[str | None]
    values: Mapping[str, object]
    stored: StoredText | None

    def has_vector_of(self, text_hash: bytes, space_id: int) -> bool:
        """Whether the stored vector is of this text, in this space."""
        return self.stored is not None and (self.stored.text_hash, self.stored.space_id) == (text_hash, space_id)

    @property
    def is_stored_by_name(self) -> bool:
        """Whether the vector is stored under the present name and tenant."""
        return self.stored is not None and (self.stored.tenant_id, self.stored.name) == (self.tenant_id, self.name)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a resource cannot be embedded as it is."""

    code: str
    message: str
