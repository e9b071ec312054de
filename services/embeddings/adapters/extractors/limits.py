"""What a document may cost, each limit with the name by which an error names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from services.embeddings.domain.errors import ExtractionError, ResourceLimitError

MIB = 1024 * 1024
TOO_DEEP = ("stack overflow", "too many nested")


@dataclass(frozen=True, slots=True)
class ExtractionLimits:
    """Limits for one document.

    Attributes:
        wall_seconds: time from the start of the reading.
        cpu_seconds: processor time.
        memory_bytes: address space beyond what a process that has read nothing yet uses.
        input_bytes: size of the file.
        unpacked_bytes: what the members of an archive (DOCX, EPUB and the like are archives) may unpack to together.
        output_bytes: pages and encoded images together.
        pages: pages, slides, sheets or frames.
        characters: characters of text in all pages.
        images: images in all pages.
        pixels: pixels of one image before it is made smaller.
    """

    wall_seconds: float = 300.0
    cpu_seconds: int = 240
    memory_bytes: int = 1024 * MIB
    input_bytes: int = 512 * MIB
    unpacked_bytes: int = 512 * MIB
    output_bytes: int = 256 * MIB
    pages: int = 10_000
    characters: int = 10_000_000
    images: int = 5_000
    pixels: int = 100_000_000

    def require(self, limit: str, value: float) -> None:
        """Raise ResourceLimitError when ``value`` is more than the limit of that name."""
        allowed = getattr(self, limit)
        if value > allowed:
            raise ResourceLimitError(limit, f"the document has {value:,} where at most {allowed:,} are read")


def limit_behind(error: BaseException | None) -> MemoryError | ResourceLimitError | None:
    """The limit that the error is at bottom, which libraries say in their own ways: memory, or ``nesting``."""
    while error is not None:
        if isinstance(error, MemoryError) or "alloc" in str(error):
            return MemoryError()
        if isinstance(error, RecursionError) or any(sign in str(error) for sign in TOO_DEEP):
            return too_deep()
        error = error.__cause__ or error.__context__
    return None


def too_deep() -> ResourceLimitError:
    """The error for a document whose parts are within one another more often than can be followed."""
    return ResourceLimitError("nesting", "the document nests deeper than can be read")


def entities_defined() -> ResourceLimitError:
    """The error for a document that defines XML entities: bombs are made of them."""
    return ResourceLimitError("xml_entities", "the document defines XML entities, of which none are read")


@contextmanager
def whatever_breaks() -> Iterator[None]:
    """A part of a document may break in any way; the others are still there. Limits are not breakage."""
    try:
        yield
    except ExtractionError:
        raise
    except Exception as error:
        if limit := limit_behind(error):
            raise limit from error
