"""Has a resource looked at again, whatever its end state was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.chassis.resource_types import ResourceType
from services.files.application.ports import Resources
from services.files.application.put_resource import find_type
from services.files.domain.resource import check_resource_id, resource_not_found


@dataclass(frozen=True, slots=True)
class RetryResource:
    """The use case."""

    types: Mapping[str, ResourceType]
    resources: Resources

    async def __call__(self, scope: AccessScope, type_name: str, resource_id: int) -> None:
        """Announce the resource once more. What failed is embedded; a text that has its vector keeps that.

        Raises:
            NotFoundError: ``UNKNOWN_RESOURCE_TYPE`` or ``RESOURCE_NOT_FOUND``, the latter for another tenant's too.
            InvalidInputError: ``INVALID_RESOURCE`` for a number that is no id.
        """
        type_ = find_type(self.types, type_name)
        if not await self.resources.announce(scope, type_, check_resource_id(resource_id)):
            raise resource_not_found(resource_id)
