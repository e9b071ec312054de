"""Why a file cannot be embedded. These do not get better by themselves: the file ends FAILED with the code."""

from __future__ import annotations

from services.chassis.kernel.errors import CauceError


class ExtractionError(CauceError):
    """The document cannot be read.

    Codes: ``ENCRYPTED``, ``CORRUPT``, ``UNSUPPORTED_MEDIA_TYPE``, ``RESOURCE_LIMIT``.
    """


class ResourceLimitError(ExtractionError):
    """The document costs more than it may.

    Attributes:
        limit: the name of the limit, which the message names too.
    """

    def __init__(self, limit: str, message: str) -> None:
        super().__init__("RESOURCE_LIMIT", f"{limit}: {message}", remedy="split the document, or raise the limit")
        self.limit = limit


class LeaseLostError(Exception):
    """The work was taken from this worker, or its input changed while it worked: nothing may be written."""
