"""What can go wrong with a file, a claim or a sweep."""

from __future__ import annotations

from collections.abc import Mapping

from services.chassis.kernel.errors import CauceError, NotFoundError, UnavailableError


class ExtractionError(CauceError):
    """The document cannot be read, and will not get better by itself: the file ends FAILED with the code.

    Codes: ``ENCRYPTED``, ``CORRUPT``, ``UNSUPPORTED_MEDIA_TYPE``, ``RESOURCE_LIMIT``; where a page is to be shown, also
    ``PAGE_NOT_FOUND`` and ``NO_PAGES``.
    """


class ResourceLimitError(ExtractionError):
    """The document costs more than it may.

    Attributes:
        limit: the name of the limit, which the message names too.
    """

    def __init__(self, limit: str, message: str) -> None:
        super().__init__("RESOURCE_LIMIT", f"{limit}: {message}", remedy="split the document, or raise the limit")
        self.limit = limit


def page_not_found(number: int) -> ExtractionError:
    """The error for a page that a document does not have."""
    return ExtractionError("PAGE_NOT_FOUND", f"the file has no page {number}", remedy="its status says how many it has")


def file_not_found() -> NotFoundError:
    """The error for a file that the scope does not hold."""
    return NotFoundError("FILE_NOT_FOUND", "there is no such file", where="file_id", remedy="list the files")


class LeaseLostError(Exception):
    """The work was taken from this worker, or its input changed while it worked: nothing may be written."""


class SweepIncompleteError(UnavailableError):
    """Some types of resource could not be looked at.

    Attributes:
        found: what was found and repaired in all others, by type, then by reason.
    """

    def __init__(self, faults: Mapping[str, str], found: Mapping[str, Mapping[str, int]]) -> None:
        super().__init__(
            "SWEEP_INCOMPLETE",
            "; ".join(f"{name}: {fault}" for name, fault in faults.items()),
            where=", ".join(faults),
            remedy="migrate the database if a type is new, else correct its context.sql",
        )
        self.found = found
