"""Reconciles one file: reads what it is now, and makes its chunks and vectors agree with that.

Running it twice, late or out of order gives the same rows. No transaction is open while a document is extracted or a
model is called, and nothing is written without a valid lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opentelemetry import trace

from services.chassis.models.space import Vector
from services.embeddings.application.ports import (
    Chunker,
    DocumentEmbedder,
    DocumentExtractor,
    EmbeddedChunk,
    FileWork,
    ImageDescriber,
    KnownDescriptions,
    KnownVectors,
    ObjectReader,
)
from services.embeddings.domain.chunk import Chunk, DocumentText
from services.embeddings.domain.document import ExtractedDocument, Page, PageFault, PageImage
from services.embeddings.domain.enrichment import ImageDescription, enriched, kind_of
from services.embeddings.domain.file_work import ClaimedFile, FileContext, FileResult, Outcome, PageRecord, Stage

DESCRIBE_BATCH = 4
QUICK_SECONDS = 20.0
"""A file that takes longer to be read is large, whatever its size."""
QUICK_IMAGES = 50
"""So is one with more images that nobody has described yet."""

_tracer = trace.get_tracer("cauce")


class _FoundLargeError(Exception):
    """The file is more work than its size told."""


@dataclass(frozen=True, slots=True)
class EmbedFile:
    """The use case. ``space_id`` is the recorded id of the embedder's space."""

    work: FileWork
    known_vectors: KnownVectors
    known_descriptions: KnownDescriptions
    objects: ObjectReader
    extractor: DocumentExtractor
    describer: ImageDescriber
    chunker: Chunker
    embedder: DocumentEmbedder
    space_id: int
    quick_seconds: float = QUICK_SECONDS
    quick_images: int = QUICK_IMAGES

    async def __call__(self, claim: ClaimedFile) -> None:
        """Bring a claimed file to its end state, or set it aside once when it turns out to be a large one.

        Raises:
            ExtractionError: the document cannot be read, and will not get better by itself.
            UnavailableError: a provider is away or asks to wait.
            LeaseLostError: somebody else has the file now, or it changed meanwhile; nothing was written.
        """
        context = claim.context
        if context is None:
            await self.work.forget(claim)
            return
        try:
            document = await self._extract(claim, context)
            descriptions = await self._describe(claim, document)
        except _FoundLargeError:
            await self.work.set_aside(claim)
            return
        text = DocumentText.join(list(enriched(document.pages, descriptions)))
        # A long document takes seconds, in which leases must be renewed.
        chunks = await asyncio.to_thread(self.chunker.chunk, text, by_line=context.by_line)
        embedded = await self._embed(claim, chunks)
        await self.work.report(claim, Stage.STORING, len(embedded), len(embedded))
        result = self._result(context, document, descriptions, text)
        with _tracer.start_as_current_span("replace chunks", attributes={"cauce.chunks": len(embedded)}):
            await self.work.complete(claim, result, embedded)

    async def _extract(self, claim: ClaimedFile, context: FileContext) -> ExtractedDocument:
        await self.work.report(claim, Stage.EXTRACTING)
        with _tracer.start_as_current_span("extract", attributes={"cauce.file.bytes": context.size_bytes}) as span:
            async with self.objects.as_local_file(context.storage_key) as path:
                try:
                    async with asyncio.timeout(None if claim.is_large else self.quick_seconds):
                        document = await self.extractor.extract(path, name=claim.name, media_type=context.media_type)
                except TimeoutError:
                    raise _FoundLargeError from None
            span.set_attribute("cauce.pages", len(document.pages))
            return document

    async def _describe(self, claim: ClaimedFile, document: ExtractedDocument) -> dict[str, ImageDescription]:
        """What each distinct image shows, by digest, in page order; what is known already is not paid for again."""
        distinct = {image.digest: image for page in document.pages for image in page.images}
        if not distinct:
            return {}
        known = {digest: ImageDescription("", image.fault) for digest, image in distinct.items() if image.fault}
        sound = [digest for digest in distinct if digest not in known]
        known |= await self.known_descriptions.find(claim.tenant_id, self.describer.name, sound)
        missing = [image for digest, image in distinct.items() if digest not in known]
        if len(missing) > self.quick_images and not claim.is_large:
            raise _FoundLargeError
        with _tracer.start_as_current_span(
            "describe images", attributes={"cauce.images": len(distinct), "cauce.images.known": len(known)}
        ):
            for start in range(0, len(missing), DESCRIBE_BATCH):
                await self.work.report(claim, Stage.DESCRIBING, len(known), len(distinct))
                batch = missing[start : start + DESCRIBE_BATCH]
                known |= await self._describe_batch(claim, batch)
        return {digest: known[digest] for digest in distinct}

    async def _describe_batch(self, claim: ClaimedFile, images: Sequence[PageImage]) -> dict[str, ImageDescription]:
        """What the images show. What was paid for is kept, also where the provider is away for the next."""
        answers = await asyncio.gather(*(self.describer.describe([image]) for image in images), return_exceptions=True)
        found: dict[str, ImageDescription] = {}
        faults: list[BaseException] = []
        for image, answer in zip(images, answers, strict=True):
            if isinstance(answer, BaseException):
                faults.append(answer)
            else:
                (found[image.digest],) = answer
        good = {digest: description for digest, description in found.items() if description.error is None}
        if good:
            await self.work.keep_descriptions(claim, self.describer.name, good)
        if faults:
            raise faults[0]
        return found

    async def _embed(self, claim: ClaimedFile, chunks: Sequence[Chunk]) -> list[EmbeddedChunk]:
        """Vectors for the chunks; a text that has one in this space already is not paid for again."""
        if not chunks:
            return []
        texts = {chunk.text_hash: chunk.text for chunk in chunks}
        vectors = await self.known_vectors.find(claim, self.space_id, list(texts))
        missing = {text_hash: text for text_hash, text in texts.items() if text_hash not in vectors}
        await self.work.report(claim, Stage.EMBEDDING, len(vectors), len(texts))
        with _tracer.start_as_current_span(
            "embed", attributes={"cauce.texts": len(texts), "cauce.texts.known": len(vectors)}
        ):
            async for hashes, batch in self._embed_missing(missing):
                fresh = dict(zip(hashes, batch, strict=True))
                vectors |= fresh
                if len(vectors) < len(texts):
                    await self.work.keep(claim, self.space_id, fresh)
                await self.work.report(claim, Stage.EMBEDDING, len(vectors), len(texts))
        return [EmbeddedChunk(chunk, vectors[chunk.text_hash]) for chunk in chunks]

    async def _embed_missing(self, missing: dict[bytes, str]) -> AsyncIterator[tuple[list[bytes], list[Vector]]]:
        hashes = iter(missing)
        async for batch in self.embedder.embed_documents(list(missing.values())):
            yield [next(hashes) for _ in batch], batch

    def _result(
        self,
        context: FileContext,
        document: ExtractedDocument,
        descriptions: Mapping[str, ImageDescription],
        text: DocumentText,
    ) -> FileResult:
        spans = dict(zip(text.numbers, text.spans, strict=True))
        pages = (
            PageRecord(
                page.number,
                kind_of(page, _of(page, descriptions), self.describer.page_kind),
                page.layout and replace(page.layout, spans=spans.get(page.number, ())),
            )
            for page in document.pages
            if page.number is not None
        )
        return FileResult(
            media_type=document.media_type,
            page_count=document.page_count,
            outcome=Outcome.INDEXED if text.text else Outcome.EMPTY,
            outcome_reason="EMPTY_FILE" if context.size_bytes == 0 else _reason(document, descriptions, text),
            space_id=self.space_id,
            declared_language=context.language,
            pages=tuple(pages),
            describer=self.describer.name,
            descriptions=descriptions,
        )


def _of(page: Page, descriptions: Mapping[str, ImageDescription]) -> list[ImageDescription]:
    return [descriptions[image.digest] for image in page.images]


def _reason(
    document: ExtractedDocument, descriptions: Mapping[str, ImageDescription], text: DocumentText
) -> str | None:
    """Why there is no text, or which pages are missing in it: how many parts, where there are no pages."""
    if text.text:
        read = set(text.numbers)
        unread = [str(page.number) for page in document.pages if page.fault and page.number and page.number not in read]
        if unread:
            return f"UNREADABLE_PAGES {', '.join(unread)}"
        parts = sum(page.fault is not None for page in document.pages if page.number is None)
        return f"UNREADABLE_PARTS {parts}" if parts else None
    faults = {image.digest: image.fault for page in document.pages for image in page.images}
    if any(description.error and not faults[digest] for digest, description in descriptions.items()):
        return "IMAGES_NOT_DESCRIBED"
    if any(page.fault is PageFault.GARBLED for page in document.pages):
        return "GARBLED_TEXT"
    if any(page.fault is PageFault.UNREADABLE for page in document.pages):
        return "UNREADABLE_PARTS"
    return "IMAGES_UNREADABLE" if any(faults.values()) else "NO_TEXT"
