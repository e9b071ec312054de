"""A context for a prompt: passages and resources together, within a budget of tokens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from services.chassis.kernel.scope import AccessScope
from services.search.application.ports import FileChunkIndex
from services.search.application.retrieval import Retrieval
from services.search.application.search_file_chunks import SearchFileChunks
from services.search.application.search_resources import SearchResources
from services.search.domain.context import (
    ContextCriteria,
    ContextExecuted,
    ContextFound,
    ContextResult,
    assemble_context,
)


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Searches both for the same question, and quotes what fits."""

    retrieval: Retrieval
    search_file_chunks: SearchFileChunks
    search_resources: SearchResources
    index: FileChunkIndex

    async def __call__(self, scope: AccessScope, criteria: ContextCriteria) -> ContextResult:
        """Build. Raises what the two searches raise."""
        self.search_resources.require_known(criteria.resources)
        prepared = await self.retrieval.prepare(scope, criteria.passages)
        passages, resources = await asyncio.gather(
            self.search_file_chunks(scope, criteria.passages, prepared),
            self.search_resources(scope, criteria.resources, prepared),
        )
        # In a thread: of a thousand passages it is a second's work, for which other callers would wait.
        context = await asyncio.to_thread(
            assemble_context,
            passages.results,
            resources.results,
            await self.index.find_beside(scope, passages.results),
            budget=criteria.budget,
            chunks_per_file=criteria.chunks_per_file,
        )
        beyond = sum(max(found.total.count - len(found.results), 0) for found in (passages, resources))
        return ContextResult(
            context.items,
            context.text,
            context.tokens,
            criteria.budget,
            replace(context.left_out, beyond=beyond),
            ContextFound(passages.total, resources.total),
            ContextExecuted(passages.executed, resources.executed, prepared.reports),
        )
