"""Deletes a resource from the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.chassis.resource_types import ResourceType
from services.files.application.ports import Resources
from services.files.application.put_resource import find_type
from services.files.domain.resource import Outcome, ResourceDeletion, check_resource_id, resource_not_found


@dataclass(frozen=True, slots=True)
class DeleteResource:
    """The use case."""

    types: Mapping[str, ResourceType]
    resources: Resources

    async def __call__(self, scope: AccessScope, type_name: str, resource_id: int) -> None:
        """Delete; what was made of the resource follows.

        Raises:
            NotFoundError: ``UNKNOWN_RESOURCE_TYPE`` or ``RESOURCE_NOT_FOUND``, the latter for another tenant's too.
            InvalidInputError: ``INVALID_RESOURCE`` for a number that is no id.
        """
        type_ = find_type(self.types, type_name)
        deletion = ResourceDeletion(check_resource_id(resource_id))
        ((outcome, _),) = await self.resources.apply(scope, type_, [deletion])
        if outcome is Outcome.ABSENT:
            raise resource_not_found(resource_id)
