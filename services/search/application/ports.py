"""The ports of the search service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from services.chassis.kernel.scope import AccessScope
from services.chassis.models.space import EmbeddingSpace, Vector
from services.search.domain.criteria import (
    FileChunksCriteria,
    FileChunkSearchCriteria,
    ResourceKey,
    ResourceSearchCriteria,
)
from services.search.domain.results import FileChunks, NearestFileChunks, NearestResources, StoredResource


@dataclass(frozen=True, slots=True)
class RecordedSpace:
    """An embedding space as the database records it: rows name it by ``space_id``."""

    space_id: int
    space: EmbeddingSpace


class Spaces(Protocol):
    """The embedding spaces that the index has."""

    async def find_active(self) -> RecordedSpace | None:
        """The space that answers searches, None before the first one is recorded."""


class QueryEmbedder(Protocol):
    """Questions to vectors of one embedding space."""

    @property
    def space(self) -> EmbeddingSpace:
        """The space that the vectors belong to."""

    async def embed_query(self, text: str) -> Vector:
        """The vector of a question (float32, 768 numbers, unit length). Raises UnavailableError."""


class FileChunkIndex(Protocol):
    """The chunks of files, within the caller's scope and one embedding space."""

    async def nearest(
        self, scope: AccessScope, space_id: int, vector: Vector, criteria: FileChunkSearchCriteria
    ) -> NearestFileChunks:
        """The chunks nearest to the vector, best first, equal scores by ``chunk_id``.

        Raises NotFoundError ``FILE_NOT_FOUND`` for a ``criteria.file_id`` outside the scope.
        """

    async def get_chunks(self, scope: AccessScope, criteria: FileChunksCriteria) -> FileChunks:
        """The chunks of one file in the order of its text.

        Raises NotFoundError ``FILE_NOT_FOUND`` for a file outside the scope.
        """


class ResourceIndex(Protocol):
    """The resources of every type, within the caller's scope and one embedding space."""

    async def nearest(
        self, scope: AccessScope, space_id: int, vector: Vector, criteria: ResourceSearchCriteria
    ) -> NearestResources:
        """The resources nearest to the vector, best first, equal scores by type and id."""

    async def find(self, scope: AccessScope, key: ResourceKey) -> StoredResource | None:
        """What the index holds of a resource, None when it has none within the scope."""
