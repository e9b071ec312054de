"""What the index holds of one resource: the stored text, its hash, its space and its age."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.search.application.ports import ResourceIndex
from services.search.domain.criteria import ResourceKey
from services.search.domain.errors import resource_not_found, unknown_resource_type
from services.search.domain.results import StoredResource


@dataclass(frozen=True, slots=True)
class ReadResource:
    """Reads a stored embedding's text."""

    index: ResourceIndex
    known_types: Collection[str]

    async def __call__(self, scope: AccessScope, key: ResourceKey) -> StoredResource:
        """Read. Raises NotFoundError ``UNKNOWN_RESOURCE_TYPE`` or ``RESOURCE_NOT_FOUND``."""
        if key.entity_type not in self.known_types:
            raise unknown_resource_type(key.entity_type, self.known_types, where="type")
        found = await self.index.find(scope, key)
        if found is None:
            raise resource_not_found(key.entity_type, key.entity_id)
        return found
