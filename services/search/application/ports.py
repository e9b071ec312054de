"""The ports of the search service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from services.search.domain.fusion import Fusion
from services.search.domain.results import (
    FileChunk,
    FileChunkMatch,
    FileChunks,
    FoundFileChunks,
    FoundResources,
    ResourceMatch,
    StoredResource,
)
from services.search.domain.words import Wording


@dataclass(frozen=True, slots=True)
class RecordedSpace:
    """An embedding space as the database records it: rows name it by ``space_id``.

    ``lexical`` says whether there is an index of words beside it that can be relied on.
    """

    space_id: int
    space: EmbeddingSpace
    lexical: bool = False


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
        """The vector of a question (float32, 768 numbers, unit length).

        Raises:
            UnavailableError: it cannot be had now.
            InvalidInputError: the text is too long.
        """

    async def embed_passage(self, text: str) -> Vector:
        """The vector of a passage. Raises as ``embed_query`` does."""


class Wordings(Protocol):
    """What texts say, by the rules that their words are found by."""

    async def read(self, texts: Sequence[str]) -> list[Wording]:
        """Each text with its words."""


class StoredQueryVectors(Protocol):
    """Vectors of questions, kept beyond this process. None of its faults reaches a caller: then nothing is kept."""

    async def find(self, scope: AccessScope, space: str, text_hash: bytes) -> Vector | None:
        """The vector of a text, None when it is not there or cannot be had now."""

    async def store(self, scope: AccessScope, space: str, text_hash: bytes, vector: Vector) -> None:
        """Keep the vector of a text, if that is possible now."""


@dataclass(frozen=True, slots=True)
class Question:
    """What the legs of a search look for; None for a leg that is not to run.

    Attributes:
        space_id: the space of the vector, and of what is searched.
        vector: of the question.
        text: whose words are looked for.
    """

    space_id: int
    vector: Vector | None = None
    text: str | None = None


class FileChunkIndex(Protocol):
    """The chunks of files, within the caller's scope and one embedding space."""

    async def search(
        self, scope: AccessScope, question: Question, criteria: FileChunkSearchCriteria, fusion: Fusion
    ) -> FoundFileChunks:
        """The chunks that the question's legs find, best first: ``top_n`` whenever so many pass the filter.

        By cosine or by BM25 where one leg runs, by the fused score where both do; equal ones by ``chunk_id``. When the
        lexical leg fails beside another, its error is in the legs.

        Raises NotFoundError ``FILE_NOT_FOUND`` for a file of the filter outside the scope.
        """

    async def cosines(
        self, scope: AccessScope, question: Question, matches: Sequence[FileChunkMatch]
    ) -> Mapping[tuple[str, int], float]:
        """The cosine of the question's vector with each of the passages, by its key; none for one that is gone."""

    async def find_beside(
        self, scope: AccessScope, matches: Sequence[FileChunkMatch]
    ) -> Mapping[tuple[int, int], FileChunk]:
        """The chunks right before and after the passages, by file and position, without the passages themselves."""

    async def get_chunks(self, scope: AccessScope, criteria: FileChunksCriteria) -> FileChunks:
        """The chunks of one file in the order of its text.

        Raises NotFoundError ``FILE_NOT_FOUND`` for a file outside the scope.
        """


class ResourceIndex(Protocol):
    """The resources of every type, within the caller's scope and one embedding space."""

    async def search(
        self, scope: AccessScope, question: Question, criteria: ResourceSearchCriteria, fusion: Fusion
    ) -> FoundResources:
        """The resources that the question's legs find, as ``FileChunkIndex`` does; equal ones by type and id."""

    async def cosines(
        self, scope: AccessScope, question: Question, matches: Sequence[ResourceMatch]
    ) -> Mapping[tuple[str, int], float]:
        """The cosine of the question's vector with each of the resources, by its key; none for one that is gone."""

    async def find(self, scope: AccessScope, key: ResourceKey) -> StoredResource | None:
        """What the index holds of a resource, None when it has none within the scope."""
