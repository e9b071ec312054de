"""The resources that mean nearly the same as a question or share its words, of one type, of several, or of all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.search.application.ports import ResourceIndex
from services.search.application.retrieval import Prepared, Retrieval
from services.search.domain.criteria import ResourceSearchCriteria
from services.search.domain.errors import unknown_resource_type
from services.search.domain.results import ResourceSearchResult


@dataclass(frozen=True, slots=True)
class SearchResources:
    """Looks for the question in the resources of the active space only, by its meaning, its words or both."""

    retrieval: Retrieval
    index: ResourceIndex
    known_types: Collection[str]

    async def __call__(
        self, scope: AccessScope, criteria: ResourceSearchCriteria, prepared: Prepared | None = None
    ) -> ResourceSearchResult:
        """Search; ``prepared`` is the question when it is looked up elsewhere as well.

        Raises:
            NotFoundError: ``UNKNOWN_RESOURCE_TYPE``.
            InvalidInputError: ``CURSOR_MISMATCH``.
            ConflictError: ``CURSOR_EXPIRED``.
            UnavailableError: no space is active, or a leg that the mode cannot do without cannot run now.
        """
        self.require_known(criteria)
        return ResourceSearchResult(*await self.retrieval(scope, criteria, self.index, prepared))

    def require_known(self, criteria: ResourceSearchCriteria) -> None:
        """Raise NotFoundError ``UNKNOWN_RESOURCE_TYPE``, before a question to it costs anything."""
        for entity_type in criteria.entity_types:
            if entity_type not in self.known_types:
                raise unknown_resource_type(entity_type, self.known_types, where="entityTypes")
