"""Errors that more than one search raises."""

from __future__ import annotations

from services.chassis.kernel.errors import NotFoundError


def file_not_found(file_id: int) -> NotFoundError:
    """No file of that id is in the index, or none that the caller may see; the two are not told apart."""
    return NotFoundError(
        "FILE_NOT_FOUND",
        f"no file {file_id} is known",
        where="fileId",
        remedy="check the id; a file that was just uploaded is known after a moment",
    )
