"""Reconciles a batch of resources of one type: reads what each is now, and makes its vector agree with that.

Running it twice, late or out of order gives the same rows. No transaction is open while the model is called, nothing
is written without a valid lease, and one bad resource fails alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from opentelemetry import metrics, trace

from services.chassis.kernel.errors import UnavailableError
from services.embeddings.application.embed_texts import embed_texts
from services.embeddings.application.ports import DocumentEmbedder
from services.embeddings.application.resource_ports import BatchResult, EmbeddedResource, ResourceWork
from services.embeddings.domain.resource_text import ResourceTextError, TextRecipe, hash_text
from services.embeddings.domain.resource_work import ClaimedBatch, Failure, ResourceContext, Source

MAX_READS = 5

_tracer = trace.get_tracer("cauce")
_meter = metrics.get_meter("cauce")
_freshness = _meter.create_histogram(
    "cauce.freshness",
    unit="s",
    description="From a change of a resource to the commit that makes it findable",
)
_outcomes = _meter.create_counter("cauce.resources", unit="{resource}", description="Reconciled resources by outcome")


@dataclass(frozen=True, slots=True)
class _Draft:
    """A resource whose text wants a vector; a long text has more than one part."""

    context: ResourceContext
    text: str
    text_hash: bytes
    parts: list[str]


@dataclass(frozen=True, slots=True)
class EmbedResources:
    """The use case. ``space_id`` is the recorded id of the embedder's space; recipes are by type."""

    work: ResourceWork
    embedder: DocumentEmbedder
    recipes: Mapping[str, TextRecipe]
    space_id: int

    async def __call__(self, batch: ClaimedBatch) -> None:
        """Bring the resources of a claimed batch to their end states.

        Raises:
            UnavailableError: the provider is away or asks to wait; or ``CONTEXT_UNSTABLE``.
        """
        recipe = self.recipes[batch.entity_type]
        result = BatchResult(recipe.version, self.space_id)
        contexts = await self._read(batch, recipe, result)
        result.gone = [entity_id for entity_id in batch.entity_ids if entity_id not in contexts]
        drafts = self._draft(contexts.values(), recipe, result)
        await self._embed_drafts(drafts, result)
        with _tracer.start_as_current_span("store vectors", attributes={"cauce.vectors": len(result.embedded)}):
            settled = await self.work.settle(batch, result)
        _observe(batch, result, settled)

    async def _read(self, batch: ClaimedBatch, recipe: TextRecipe, result: BatchResult) -> dict[int, ResourceContext]:
        """What the resources are now, by id.

        What a resource reads is noted before the text that it goes into is read for the last time. Otherwise a change
        of it in between would pass by with nobody knowing that this resource has to follow.
        """
        contexts: dict[int, ResourceContext] = {}
        sources: dict[int, Collection[Source]] = {}
        unsure = batch.entity_ids
        for _ in range(MAX_READS):
            found = {context.entity_id: context for context in await self.work.read(batch.entity_type, unsure)}
            for entity_id in unsure:
                contexts.pop(entity_id, None)
            contexts |= found
            sources |= {entity_id: recipe.sources(context.reads) for entity_id, context in found.items()}
            if not any(sources[entity_id] for entity_id in found):
                break
            unsure = await self.work.remember(batch, {entity_id: sources[entity_id] for entity_id in found})
            if not unsure:
                break
        else:
            raise UnavailableError("CONTEXT_UNSTABLE", "what these resources read changes faster than it can be read")
        result.sources = {entity_id: sources[entity_id] for entity_id in contexts}
        return contexts

    def _draft(self, contexts: Collection[ResourceContext], recipe: TextRecipe, result: BatchResult) -> list[_Draft]:
        """The texts that want a vector. What has its vector already, or cannot get one, goes to the result."""
        drafts: list[_Draft] = []
        for context in contexts:
            try:
                recipe.require_sound(context)
                text = recipe.text(context.entity_id, context.values)
                parts = recipe.parts(text)
            except ResourceTextError as error:
                result.failed.append((context, Failure(error.code, error.message)))
                continue
            text_hash = hash_text(text)
            if context.has_vector_of(text_hash, self.space_id):
                (result.unchanged if context.is_stored_by_name else result.renamed).append(context)
            else:
                drafts.append(_Draft(context, text, text_hash, parts))
        return drafts

    async def _embed_drafts(self, drafts: Sequence[_Draft], result: BatchResult) -> None:
        with _tracer.start_as_current_span("embed", attributes={"cauce.texts": len(drafts)}):
            answers = await embed_texts(self.embedder, [draft.parts for draft in drafts])
        for draft, answer in zip(drafts, answers, strict=True):
            if isinstance(answer, Failure):
                result.failed.append((draft.context, answer))
            else:
                result.embedded.append(EmbeddedResource(draft.context, draft.text, draft.text_hash, answer))


def _observe(batch: ClaimedBatch, result: BatchResult, settled: Collection[int]) -> None:
    attributes = {"type": batch.entity_type}
    counts = {
        "embedded": len(result.embedded),
        "renamed": len(result.renamed),
        "unchanged": len(result.unchanged),
        "failed": len(result.failed),
        "gone": len(result.gone),
    }
    for outcome, count in counts.items():
        if count:
            _outcomes.add(count, {**attributes, "outcome": outcome})
    now = datetime.now(UTC)
    requested = {resource.entity_id: resource.requested_at for resource in batch.resources}
    for context in [*(resource.context for resource in result.embedded), *result.renamed]:
        if context.entity_id in settled:
            _freshness.record(max(0.0, (now - requested[context.entity_id]).total_seconds()), attributes)
