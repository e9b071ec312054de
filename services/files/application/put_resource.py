"""Puts the definition of a resource in the place of the one that is there, if any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.chassis.kernel.scope import AccessScope
from services.chassis.resource_types import ResourceType
from services.files.application.ports import Resources
from services.files.domain.resource import (
    Outcome,
    Resource,
    define_resource,
    resource_id_taken,
    unknown_resource_type,
)


@dataclass(frozen=True, slots=True)
class PutResource:
    """The use case. Putting what is there already changes nothing; of two that put at once the last one wins."""

    types: Mapping[str, ResourceType]
    resources: Resources

    async def __call__(
        self, scope: AccessScope, type_name: str, resource_id: int, body: Any
    ) -> tuple[Resource, Outcome]:
        """Put. Return the resource as it is then, and whether it is CREATED, UPDATED or UNCHANGED.

        Raises:
            NotFoundError: ``UNKNOWN_RESOURCE_TYPE``.
            InvalidInputError: ``INVALID_RESOURCE``.
            ConflictError: ``RESOURCE_ID_TAKEN``.
        """
        type_ = find_type(self.types, type_name)
        definition = define_resource(type_, resource_id, body)
        ((outcome, resource),) = await self.resources.apply(scope, type_, [definition])
        if resource is None:
            raise resource_id_taken()
        return resource, outcome


def find_type(types: Mapping[str, ResourceType], name: str) -> ResourceType:
    """The type of that name. Raises NotFoundError ``UNKNOWN_RESOURCE_TYPE``, naming those that there are."""
    type_ = types.get(name)
    if type_ is None:
        raise unknown_resource_type(name, types)
    return type_
