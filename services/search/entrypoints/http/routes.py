"""Search over files: the routes parse, call a use case and render what it answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from services.chassis.http.app import CallerScope
from services.chassis.http.parameters import WholeNumber
from services.search.application.read_file_chunks import ReadFileChunks
from services.search.application.search_file_chunks import SearchFileChunks
from services.search.domain.criteria import (
    CHUNKS_DEFAULT,
    TOP_N_DEFAULT,
    FileChunksCriteria,
    FileChunkSearchCriteria,
    PageRanges,
    SearchMode,
)
from services.search.domain.cursor import CURSOR_MAX_CHARACTERS, Cursor
from services.search.domain.results import FileChunks, FileChunkSearchResult
from services.search.entrypoints.http.filters import ChunkFilterParameters
from services.search.entrypoints.http.techniques import TechniqueParameters
from services.search.entrypoints.telemetry import observed_search

router = APIRouter(prefix="/api/web/embeddings/files", tags=["files"])


class FileChunkSearchRequest(TechniqueParameters, ChunkFilterParameters):
    """A question to the passages of files."""

    query: str = Field(description="What to look for, in any language; 1 to 2,000 characters.")
    top_n: int = Field(default=TOP_N_DEFAULT, description="The most results, 1 to 1,000.")
    min_score: float | None = Field(default=None, description="The least cosine score, -1 to 1; 0 is a threshold.")
    mode: SearchMode | None = Field(
        default=None, strict=False, description="By meaning, by words, or by both; the service's setting when left out."
    )
    after: str | None = Field(
        default=None,
        description="Go on after this: `next` of the answer before. Everything else must be as it was.",
        max_length=CURSOR_MAX_CHARACTERS,
    )
    file_id: int | None = Field(default=None, description="Look into this file only.")
    exact: bool = Field(
        default=False,
        description="Compare every vector that passes the filters instead of walking the index: complete, and slow.",
    )


class FileChunksRequest(BaseModel):
    """Which chunks of a file."""

    model_config = ConfigDict(extra="forbid")

    pages: str | None = Field(default=None, description="Pages like 2, 2-5 or 1,3-4; all when left out.")
    limit: WholeNumber = Field(default=CHUNKS_DEFAULT, description="The most chunks at once, 1 to 1,000.")
    after: WholeNumber | None = Field(
        default=None, description="Go on after this position: `next` of the answer before."
    )


async def _search_file_chunks(request: Request) -> SearchFileChunks:
    use_case: SearchFileChunks = request.app.state.search_file_chunks
    return use_case


async def _read_file_chunks(request: Request) -> ReadFileChunks:
    use_case: ReadFileChunks = request.app.state.read_file_chunks
    return use_case


@router.post("/search")
async def search_file_chunks(
    body: FileChunkSearchRequest,
    scope: CallerScope,
    use_case: Annotated[SearchFileChunks, Depends(_search_file_chunks)],
) -> FileChunkSearchResult:
    """Find the passages that mean nearly the same as the query or share its words, best first."""
    criteria = FileChunkSearchCriteria(
        body.query,
        body.top_n,
        body.min_score,
        body.file_id,
        body.mode,
        body.chunk_filter(),
        body.exact,
        body.techniques(),
        None if body.after is None else Cursor.parse(body.after),
    )
    return await observed_search("files", use_case(scope, criteria))


@router.get("/{fileId}/chunks")
async def read_file_chunks(
    file_id: Annotated[WholeNumber, Path(alias="fileId")],
    request: Annotated[FileChunksRequest, Query()],
    scope: CallerScope,
    use_case: Annotated[ReadFileChunks, Depends(_read_file_chunks)],
) -> FileChunks:
    """Read the chunks of a file in the order of its text: the same answer every time, without a model."""
    pages = None if request.pages is None else PageRanges.parse(request.pages)
    return await use_case(scope, FileChunksCriteria(file_id, pages, request.limit, request.after))
