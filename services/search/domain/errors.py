"""Errors that more than one search raises."""

from __future__ import annotations

from collections.abc import Collection

from services.chassis.kernel.errors import NotFoundError


def file_not_found(file_id: int) -> NotFoundError:
    """No file of that id is in the index, or none that the caller may see; the two are not told apart."""
    return NotFoundError(
        "FILE_NOT_FOUND",
        f"no file {file_id} is known",
        where="fileId",
        remedy="check the id; a file that was just uploaded is known after a moment",
    )


def resource_not_found(entity_type: str, entity_id: int) -> NotFoundError:
    """No such resource is in the index, or none that the caller may see; the two are not told apart."""
    return NotFoundError(
        "RESOURCE_NOT_FOUND",
        f"no {entity_type} {entity_id} is in the index",
        where="id",
        remedy="check the id; a resource that was just changed is in the index after a moment",
    )


def unknown_resource_type(entity_type: str, known: Collection[str], *, where: str) -> NotFoundError:
    """There is no such type."""
    return NotFoundError(
        "UNKNOWN_RESOURCE_TYPE",
        f"there is no type of resource {entity_type[:40]!r}",
        where=where,
        remedy=f"known are: {', '.join(sorted(known))}",
    )
