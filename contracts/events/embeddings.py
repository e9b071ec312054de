"""Events of the embeddings context, on ``embeddings.events``: of files, and of each type of resource.

The name of a resource's event starts with its type in PascalCase, as in the catalogue's events.
"""

from __future__ import annotations

from contracts.events.catalog import stem_of
from contracts.events.envelope import EventType

CONTEXT = "embeddings"
FILE_EMBEDDED = EventType(CONTEXT, "FileEmbedded")
FILE_EMBEDDING_FAILED = EventType(CONTEXT, "FileEmbeddingFailed")
FILE_EMBEDDING_REMOVED = EventType(CONTEXT, "FileEmbeddingRemoved")


def resource_embedded(resource_type: str) -> EventType:
    """A resource of this type can be found by what it is now."""
    return EventType(CONTEXT, f"{stem_of(resource_type)}Embedded")


def resource_embedding_failed(resource_type: str) -> EventType:
    """A resource of this type cannot be embedded as it is, and is not found."""
    return EventType(CONTEXT, f"{stem_of(resource_type)}EmbeddingFailed")


def resource_embedding_removed(resource_type: str) -> EventType:
    """A deleted resource of this type is found no more."""
    return EventType(CONTEXT, f"{stem_of(resource_type)}EmbeddingRemoved")
