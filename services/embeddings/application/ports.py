"""The ports of the embeddings service. Each has a second implementation or a fake, under one contract suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.chassis.models.space import EmbeddingSpace, Vector
from services.embeddings.domain.chunk import Chunk, DocumentText
from services.embeddings.domain.document import ExtractedDocument, PageImage
from services.embeddings.domain.file_work import ClaimedFile, FileContext, FileResult


@dataclass(frozen=True, slots=True)
class EmbeddedChunk:
    """A chunk and its vector (float32, 768 numbers, unit length)."""

    chunk: Chunk
    vector: Vector


class FileContexts(Protocol):
    """What the source of record says of a file now."""

    async def find(self, file_id: int) -> FileContext | None:
        """The file's context, None when there is no stored file of that id."""


class FileWork(Protocol):
    """The mirror of files as a work queue. Every write names the lease it is made under."""

    async def claim(self, limit: int) -> list[ClaimedFile]:
        """Take up to ``limit`` files that want work, each under a new lease."""

    async def renew(self, claim: ClaimedFile) -> None:
        """Extend the lease. Raises LeaseLostError when it is lost or the file changed since the claim."""

    async def report(self, claim: ClaimedFile, stage: str, done: int = 0, total: int = 0) -> None:
        """Show progress. Raises LeaseLostError like ``renew``."""

    async def complete(self, claim: ClaimedFile, result: FileResult, chunks: Sequence[EmbeddedChunk]) -> None:
        """Replace the file's chunks, set its status and announce it, in one transaction.

        Raises LeaseLostError, and then writes nothing, when the lease is lost or the file changed since the claim.
        """

    async def fail(self, claim: ClaimedFile, revision: int, code: str, message: str) -> None:
        """End the file FAILED: it will not get better by itself. Its old chunks are removed."""

    async def give_back(self, claim: ClaimedFile, code: str, message: str, *, delay_seconds: float) -> None:
        """Return the file to the queue after a passing fault; the fault stays visible."""

    async def release(self, claim: ClaimedFile) -> None:
        """Return the file to the queue at once, as if it had not been claimed."""

    async def forget(self, claim: ClaimedFile) -> None:
        """Remove the file and its chunks: the source of record has it no more."""


class KnownVectors(Protocol):
    """Vectors that were paid for already."""

    async def find(self, tenant_id: str, space_id: int, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """The known vectors of these text hashes in this space."""


class ObjectReader(Protocol):
    """The bytes of stored files."""

    def as_local_file(self, storage_key: str) -> AbstractAsyncContextManager[Path]:
        """The object as a local file for the time of the context. Raises ObjectMissingError."""


class DocumentExtractor(Protocol):
    """Bytes to pages. Runs apart from this process, with limits."""

    async def extract(self, path: Path, *, name: str, media_type: str) -> ExtractedDocument:
        """Read the document. Raises ExtractionError."""


@dataclass(frozen=True, slots=True)
class ImageDescription:
    """What an image shows, empty where there is nothing to say.

    ``error`` says why this image could not be described; its text is empty then, and the page keeps its own.
    """

    text: str
    error: str | None = None


class ImageDescriber(Protocol):
    """Images to sentences."""

    async def describe(self, images: Sequence[PageImage]) -> list[ImageDescription]:
        """One description for each image, in order. An image that fails spoils no other.

        Raises:
            UnavailableError: the describer itself is away; nothing is known about these images.
        """


class Chunker(Protocol):
    """A document's text to chunks."""

    def chunk(self, document: DocumentText) -> list[Chunk]:
        """Chunks in order of position, none longer than the limit, together covering every word."""


class DocumentEmbedder(Protocol):
    """Passages to vectors of one embedding space."""

    @property
    def space(self) -> EmbeddingSpace:
        """The space that the vectors belong to."""

    def embed_documents(self, texts: Sequence[str]) -> AsyncIterator[list[Vector]]:
        """Vectors of unit length for the texts, in order, yielded batch by batch as they arrive."""
