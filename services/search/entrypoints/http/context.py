"""A context for a prompt: the route parses, calls the use case and renders what it answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from services.chassis.http.app import CallerScope
from services.search.application.build_context import BuildContext
from services.search.domain.context import (
    BUDGET_DEFAULT,
    CHUNKS_PER_FILE_DEFAULT,
    ContextCriteria,
    ContextResult,
    considered,
)
from services.search.domain.criteria import FileChunkSearchCriteria, ResourceSearchCriteria, SearchMode
from services.search.entrypoints.http.filters import ChunkFilterParameters, ResourceFilterParameters
from services.search.entrypoints.http.techniques import TechniqueParameters

router = APIRouter(prefix="/api/web/embeddings", tags=["context"])


class ContextRequest(TechniqueParameters, ChunkFilterParameters, ResourceFilterParameters):
    """A question, and how much may be quoted to answer it."""

    query: str = Field(description="What to look for, in any language; 1 to 2,000 characters.")
    budget: int = Field(default=BUDGET_DEFAULT, description="The most tokens of the text, 1 to 200,000.")
    chunks_per_file: int = Field(
        default=CHUNKS_PER_FILE_DEFAULT,
        description="The most chunks of one file, with those that complete a passage; 1 to 1,000.",
    )
    min_score: float | None = Field(default=None, description="The least cosine score, -1 to 1; 0 is a threshold.")
    mode: SearchMode | None = Field(
        default=None, strict=False, description="By meaning, by words, or by both; the service's setting when left out."
    )


async def _build_context(request: Request) -> BuildContext:
    use_case: BuildContext = request.app.state.build_context
    return use_case


@router.post("/context")
async def build_context(
    body: ContextRequest, scope: CallerScope, use_case: Annotated[BuildContext, Depends(_build_context)]
) -> ContextResult:
    """Quote passages and resources for a prompt, nearest first, within a budget of tokens.

    Nothing is quoted twice: chunks that follow one another become one passage, and near-duplicates are left out.
    """
    top_n = considered(body.budget)
    techniques = body.techniques()
    passages = FileChunkSearchCriteria(
        body.query, top_n, body.min_score, mode=body.mode, filter=body.chunk_filter(), techniques=techniques
    )
    resources = ResourceSearchCriteria(
        body.query,
        tuple(body.entity_types or ()),
        top_n,
        body.min_score,
        body.mode,
        techniques,
        filter=body.resource_filter(),
    )
    return await use_case(scope, ContextCriteria(passages, resources, body.budget, body.chunks_per_file))
