"""The ports of the embeddings service. Each has a second implementation or a fake, under one contract suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from contracts.events.envelope import Event
from services.chassis.kernel.scope import AccessScope
from services.chassis.models.space import EmbeddingSpace, Vector
from services.embeddings.domain.chunk import Chunk, DocumentText
from services.embeddings.domain.document import ExtractedDocument, PageImage, PageKind
from services.embeddings.domain.enrichment import ImageDescription
from services.embeddings.domain.file_work import ClaimedFile, FileResult
from services.embeddings.domain.highlight import ChunkPlace


@dataclass(frozen=True, slots=True)
class EmbeddedChunk:
    """A chunk and its vector (float32, 768 numbers, unit length)."""

    chunk: Chunk
    vector: Vector


class FileWork(Protocol):
    """The mirror of files as a work queue. Every write names the lease it is made under."""

    async def claim(self, limit: int, *, large: int | None = None) -> list[ClaimedFile]:
        """Take up to ``limit`` files that want work, each under a new lease, at most ``large`` of them large ones."""

    async def renew(self, claim: ClaimedFile) -> None:
        """Extend the lease. Raises LeaseLostError when it is lost or the file changed since the claim."""

    async def report(self, claim: ClaimedFile, stage: str, done: int = 0, total: int = 0) -> None:
        """Show progress. Raises LeaseLostError like ``renew``."""

    async def keep(self, claim: ClaimedFile, space_id: int, vectors: Mapping[bytes, Vector]) -> None:
        """Keep vectors by their text's hash until the file has ended, for whoever has to begin again.

        Does nothing when the lease is lost.
        """

    async def keep_descriptions(
        self, claim: ClaimedFile, describer: str, descriptions: Mapping[str, ImageDescription]
    ) -> None:
        """Keep descriptions by their image's digest until the file has ended, likewise."""

    async def complete(self, claim: ClaimedFile, result: FileResult, chunks: Sequence[EmbeddedChunk]) -> None:
        """Replace the file's chunks, set its status and announce it, in one transaction.

        Raises LeaseLostError, and then writes nothing, when the lease is lost or the file changed since the claim.
        """

    async def fail(self, claim: ClaimedFile, code: str, message: str) -> None:
        """End the file FAILED, without chunks: it will not get better by itself. Raises LeaseLostError."""

    async def give_back(
        self, claim: ClaimedFile, code: str, message: str, *, delay_seconds: float, counts: bool
    ) -> None:
        """Return the file to the queue after a passing fault, which stays visible.

        ``counts`` says whether the attempt is spent: waiting for a provider does not spend one.
        """

    async def release(self, claim: ClaimedFile) -> None:
        """Return the file to the queue at once, as if it had not been claimed."""

    async def set_aside(self, claim: ClaimedFile) -> None:
        """Return the file to the queue likewise, as a large one."""

    async def forget(self, claim: ClaimedFile) -> None:
        """Remove the file and its chunks: the source of record has it no more."""


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """How much waits in one state, and how long ago (seconds) the oldest of them was asked for."""

    status: str
    depth: int
    oldest_age: float


class FileMirror(Protocol):
    """The mirror of files as the intake and the sweep see it."""

    async def mark(self, events: Sequence[Event]) -> None:
        """Take a batch of file events in one transaction. Repeating it, or its order, changes nothing in the end."""

    async def sweep(self) -> Counter[str]:
        """Repair what events did not bring: mark files missing or stale, remove orphans. Return counts by reason."""

    async def measure(self) -> list[QueueDepth]:
        """The depth and oldest age of the queue by state."""


class KnownVectors(Protocol):
    """Vectors that were paid for already."""

    async def find(self, claim: ClaimedFile, space_id: int, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """The known vectors of these text hashes in this space: of the tenant's chunks, and kept of this file."""


class KnownDescriptions(Protocol):
    """Descriptions of images that were made already."""

    async def find(self, tenant_id: str, describer: str, digests: Sequence[str]) -> dict[str, ImageDescription]:
        """The known descriptions of these images by this describer, without those that failed."""


class ObjectReader(Protocol):
    """The bytes of stored files."""

    def as_local_file(self, storage_key: str) -> AbstractAsyncContextManager[Path]:
        """The object as a local file for the time of the context.

        Raises GoneError ``CONTENT_MISSING`` where there is none: it was replaced or removed meanwhile, or is lost.
        """


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file whose bytes are stored."""

    name: str
    media_type: str
    storage_key: str


class FilePages(Protocol):
    """The files of a tenant as those see them who look at their pages."""

    async def get_stored(self, scope: AccessScope, file_id: int) -> StoredFile:
        """The file. Raises NotFoundError ``FILE_NOT_FOUND``."""

    async def get_chunk(self, scope: AccessScope, file_id: int, chunk_id: int) -> ChunkPlace:
        """A chunk and its pages. Raises NotFoundError ``FILE_NOT_FOUND``, ``CHUNK_NOT_FOUND``."""


class PageRenderer(Protocol):
    """A page to an image. Runs apart from this process, with limits."""

    async def render(self, path: Path, *, name: str, media_type: str, number: int, size: int) -> PageImage:
        """The page as a PNG whose longer side has at most ``size`` pixels. Raises ExtractionError."""


class DocumentExtractor(Protocol):
    """Bytes to pages. Runs apart from this process, with limits."""

    async def extract(self, path: Path, *, name: str, media_type: str) -> ExtractedDocument:
        """Read the document. Raises ExtractionError."""


class ImageDescriber(Protocol):
    """Images to sentences."""

    @property
    def name(self) -> str:
        """Which one it is: descriptions under one name are as good as one another."""

    @property
    def page_kind(self) -> PageKind:
        """What a page is whose text it found: OCR or DESCRIBED."""

    async def describe(self, images: Sequence[PageImage]) -> list[ImageDescription]:
        """One description for each image, in order. An image that fails spoils no other.

        Raises:
            UnavailableError: the describer itself is away; nothing is known about these images.
        """


class Chunker(Protocol):
    """A document's text to chunks."""

    def chunk(self, document: DocumentText, *, by_line: bool = False) -> list[Chunk]:
        """Chunks in order of position, none longer than the limit, together covering every word.

        With ``by_line`` none has anything of two lines.
        """


class DocumentEmbedder(Protocol):
    """Passages to vectors of one embedding space."""

    @property
    def space(self) -> EmbeddingSpace:
        """The space that the vectors belong to."""

    def embed_documents(self, texts: Sequence[str]) -> AsyncIterator[list[Vector]]:
        """Vectors of unit length for the texts, in order, yielded batch by batch as they arrive."""
