"""Search over resources: the routes parse, call a use case and render what it answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field

from services.chassis.http.app import CallerScope
from services.chassis.http.parameters import WholeNumber
from services.search.application.read_resource import ReadResource
from services.search.application.search_resources import SearchResources
from services.search.domain.criteria import TOP_N_DEFAULT, ResourceKey, ResourceSearchCriteria, SearchMode
from services.search.domain.cursor import CURSOR_MAX_CHARACTERS, Cursor
from services.search.domain.results import ResourceSearchResult, StoredResource
from services.search.entrypoints.http.filters import ResourceFilterParameters
from services.search.entrypoints.http.techniques import TechniqueParameters
from services.search.entrypoints.telemetry import observed_search

router = APIRouter(prefix="/api/web/embeddings", tags=["resources"])


class ResourceSearchRequest(TechniqueParameters, ResourceFilterParameters):
    """A question to the resources."""

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


async def _search_resources(request: Request) -> SearchResources:
    use_case: SearchResources = request.app.state.search_resources
    return use_case


async def _read_resource(request: Request) -> ReadResource:
    use_case: ReadResource = request.app.state.read_resource
    return use_case


@router.post("/search")
async def search_resources(
    body: ResourceSearchRequest,
    scope: CallerScope,
    use_case: Annotated[SearchResources, Depends(_search_resources)],
) -> ResourceSearchResult:
    """Find the resources that mean nearly the same as the query or share its words, best first.

    Of one type, of several, or of all.
    """
    criteria = ResourceSearchCriteria(
        body.query,
        tuple(body.entity_types or ()),
        body.top_n,
        body.min_score,
        body.mode,
        body.techniques(),
        None if body.after is None else Cursor.parse(body.after),
        body.resource_filter(),
    )
    return await observed_search("resources", use_case(scope, criteria))


@router.get("/{type}/{id}")
async def read_resource(
    entity_type: Annotated[str, Path(alias="type")],
    entity_id: Annotated[WholeNumber, Path(alias="id")],
    scope: CallerScope,
    use_case: Annotated[ReadResource, Depends(_read_resource)],
) -> StoredResource:
    """Read what the index holds of a resource: the text that its vector stands for, its hash, space and age.

    One that could not be embedded says why.
    """
    return await use_case(scope, ResourceKey(entity_type, entity_id))
