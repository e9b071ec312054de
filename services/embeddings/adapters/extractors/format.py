"""What a module declares to make a format readable, and what it gets to decide and to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from PIL.Image import Image

from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.domain.document import Page
from services.embeddings.domain.errors import ExtractionError


@dataclass(frozen=True, slots=True)
class Sample:
    """What is known of a file before it is read.

    Attributes:
        head: the first 64 KiB.
        members: the names in it when it is a ZIP archive, else empty.
        mimetype: the content of the archive member ``mimetype`` (OpenDocument, EPUB), else empty.
    """

    head: bytes
    members: frozenset[str] = frozenset()
    mimetype: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read, with the media type that it was found to have, and the encoding that it was declared with."""

    path: Path
    media_type: str
    limits: ExtractionLimits
    charset: str | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """A readable format.

    Attributes:
        name: as people call it.
        media_types: its media types, each with its file suffixes in lower case.
        recognise: the media type when the content alone shows it, else None.
        read: the pages in order, in any state of sanitising; raises ExtractionError. Whatever else it raises means
            that the document is corrupt.
        render: the page of a number as an image whose longer side has at most so many pixels. Raises like ``read``,
            and ``PAGE_NOT_FOUND``. None where what pages look like is left to the program that shows them.
        is_text: the format is text that its content does not give away (Markdown, CSV): the file's name or its
            declared type chooses it, but only for content that is text.
        option: the name by which it is chosen instead of the usual format of the same media types, if it is not that.
    """

    name: str
    media_types: Mapping[str, tuple[str, ...]]
    recognise: Callable[[Sample], str | None]
    read: Callable[[Source], Iterator[Page]]
    render: Callable[[Source, int, int], Image] | None = None
    is_text: bool = False
    option: str = ""

    def media_type_of(self, *, suffix: str = "", declared: str = "") -> str | None:
        """The media type that a file suffix or a declared media type names, None when it is not of this format."""
        for media_type, suffixes in self.media_types.items():
            if suffix in suffixes or declared == media_type:
                return media_type
        return None


def corrupt(message: str) -> ExtractionError:
    """The error for a document that is damaged beyond reading."""
    return ExtractionError(
        "CORRUPT", message, remedy="open it in the program that made it, save it again and send that"
    )


def encrypted(message: str) -> ExtractionError:
    """The error for a document that asks for a password."""
    return ExtractionError("ENCRYPTED", message, remedy="send it without a password")
