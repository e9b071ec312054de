"""Events of the catalogue of resources, on ``catalog.events``: two types for each type of resource.

The stem is the resource type's name in PascalCase, so a producer needs nothing but this module to emit them.
"""

from __future__ import annotations

from contracts.events.envelope import EventType

CONTEXT = "catalog"


def stem_of(resource_type: str) -> str:
    """The type's name as it stands in its events: words of lower-case letters joined by ``_``, to PascalCase."""
    return "".join(word.capitalize() for word in resource_type.split("_"))


def changed(resource_type: str) -> EventType:
    """A resource of this type was created or changed."""
    return EventType(CONTEXT, f"{stem_of(resource_type)}Changed")


def deleted(resource_type: str) -> EventType:
    """A resource of this type was deleted."""
    return EventType(CONTEXT, f"{stem_of(resource_type)}Deleted")
