"""The resources that mean nearly the same as a question, of one type, of several, or of all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.search.application.active_space import ActiveSpace
from services.search.application.ports import ResourceIndex
from services.search.application.query_vectors import QueryVectors
from services.search.domain.criteria import ResourceSearchCriteria
from services.search.domain.errors import unknown_resource_type
from services.search.domain.results import Executed, ResourceSearchResult


@dataclass(frozen=True, slots=True)
class SearchResources:
    """Embeds the question in the active space and compares it with the resources of that space only."""

    active_space: ActiveSpace
    query_vectors: QueryVectors
    index: ResourceIndex
    known_types: Collection[str]

    async def __call__(self, scope: AccessScope, criteria: ResourceSearchCriteria) -> ResourceSearchResult:
        """Search.

        Raises:
            NotFoundError: ``UNKNOWN_RESOURCE_TYPE``.
            UnavailableError: no space is active, or the question cannot be embedded now.
        """
        for entity_type in criteria.entity_types:
            if entity_type not in self.known_types:
                raise unknown_resource_type(entity_type, self.known_types, where="entityTypes")
        space = self.active_space.require()
        vector, cached = await self.query_vectors.embed(space.embedder, criteria.query_text)
        nearest = await self.index.nearest(scope, space.space_id, vector, criteria)
        executed = Executed("semantic", space.embedder.space.name, nearest.strategy, cached)
        return ResourceSearchResult(nearest.matches, executed)
