"""The ports of the search service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from services.chassis.kernel.scope import AccessScope
from services.chassis.models.space import EmbeddingSpace, Vector
from services.search.domain.criteria import FileChunksCriteria, FileChunkSearchCriteria
from services.search.domain.results import FileChunkMatch, FileChunks


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
    ) -> tuple[FileChunkMatch, ...]:
        """The chunks of any file by the approximate index, best first, equal scores by ``chunk_id``."""

    async def find_nearest_in_file(
        self, scope: AccessScope, space_id: int, vector: Vector, criteria: FileChunkSearchCriteria
    ) -> tuple[FileChunkMatch, ...] | None:
        """The chunks of ``criteria.file_id``, every one compared, in the same order; None for an unknown file."""

    async def find_chunks(self, scope: AccessScope, criteria: FileChunksCriteria) -> FileChunks | None:
        """The chunks of one file in the order of its text; None for an unknown file."""
