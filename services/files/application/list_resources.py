"""Lists the resources of a type, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from services.chassis.kernel.scope import AccessScope
from services.chassis.resource_types import ResourceType
from services.files.application.ports import Resources
from services.files.application.put_resource import find_type
from services.files.domain.resource import Resource

MAX_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """Resources in order of id. ``next_after`` is where the next page starts, None on the last one."""

    resources: list[Resource]
    next_after: int | None


@dataclass(frozen=True, slots=True)
class ListResources:
    """The use case."""

    types: Mapping[str, ResourceType]
    resources: Resources

    async def __call__(self, scope: AccessScope, type_name: str, *, limit: int, after: int | None) -> ResourcePage:
        """A page of at most ``limit`` resources with ids above ``after``; the caller keeps 1 <= limit <= MAX_PAGE.

        Raises:
            NotFoundError: ``UNKNOWN_RESOURCE_TYPE``.
        """
        type_ = find_type(self.types, type_name)
        found = await self.resources.list_after(scope, type_, after=after or 0, limit=limit + 1)
        page = found[:limit]
        return ResourcePage(page, page[-1].definition.resource_id if len(found) > limit else None)
