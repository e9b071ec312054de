"""Makes vectors of stored texts for the space that is built beside the active one. Nothing is extracted again.

No transaction is open while the model is called. Whatever is interrupted is taken again when its lease has run out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.chassis.kernel.errors import CauceError, UnavailableError
from services.chassis.models.failures import CallFailedError
from services.chassis.models.space import EmbeddingSpace, Vector
from services.embeddings.application.embed_texts import embed_texts
from services.embeddings.application.lease import under_lease
from services.embeddings.application.ports import DocumentEmbedder
from services.embeddings.application.space_ports import FILES, SpaceBuild, UnmadeBatch, UnmadeText
from services.embeddings.domain.resource_text import ResourceTextError, TextRecipe
from services.embeddings.domain.resource_work import Failure

AFTER_FAULT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class BuildSpace:
    """The use case. ``open_embedder`` gives who embeds in a space; recipes are by type."""

    build: SpaceBuild
    open_embedder: Callable[[EmbeddingSpace], DocumentEmbedder]
    recipes: Mapping[str, TextRecipe]
    lease_seconds: float

    async def __call__(self) -> float | None:
        """Make one batch. Return after how many seconds to look again, None where there was nothing to do.

        Only a fault of the database, or a cancellation, comes out of here.
        """
        batch = await self.build.claim()
        if batch is None:
            return None
        try:
            await under_lease(lambda: self._make(batch), lambda: self.build.renew(batch), self.lease_seconds)
        except Exception as fault:  # noqa: BLE001 - whatever it was, others may make this batch, and this worker others
            said = (
                f"{fault.code}: {fault.message}"
                if isinstance(fault, CauceError)
                else f"{type(fault).__name__}: {fault}"
            )
            await self.build.note_fault(batch, said)
            await self.build.release(batch)
            return (isinstance(fault, UnavailableError) and fault.retry_after) or AFTER_FAULT_SECONDS
        return 0.0

    async def _make(self, batch: UnmadeBatch) -> None:
        embedder = self.open_embedder(batch.space)
        wanted, refused = self._in_parts(batch)
        made: list[tuple[UnmadeText, Vector]] = []
        for (text, _), answer in zip(wanted, await _embed(embedder, [parts for _, parts in wanted]), strict=True):
            if isinstance(answer, Failure):
                refused = f"{batch.kind} {text.row_id}: {answer.code}: {answer.message}"
            else:
                made.append((text, answer))
        await self.build.store(batch, made)
        await self.build.note_fault(batch, refused)

    def _in_parts(self, batch: UnmadeBatch) -> tuple[list[tuple[UnmadeText, Sequence[str]]], str | None]:
        """The texts in the parts that they are embedded in, and the fault of one that has none."""
        wanted: list[tuple[UnmadeText, Sequence[str]]] = []
        refused = None
        for text in batch.texts:
            try:
                parts = [text.text] if batch.kind == FILES else self.recipes[batch.kind].parts(text.text)
            except ResourceTextError as error:
                refused = f"{batch.kind} {text.row_id}: {error.code}: {error.message}"
            else:
                wanted.append((text, parts))
        return wanted, refused


async def _embed(embedder: DocumentEmbedder, texts: Sequence[Sequence[str]]) -> list[Vector | Failure]:
    """As ``embed_texts``; where the model fails at some of them each time, one by one, and those are failures."""
    try:
        return await embed_texts(embedder, texts)
    except CallFailedError as error:
        if len(texts) == 1:
            return [Failure(error.code, error.message)]
    return [(await _embed(embedder, [parts]))[0] for parts in texts]
