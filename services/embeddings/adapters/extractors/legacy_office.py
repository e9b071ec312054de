"""Recognised to say what they are: encrypted Office files, and those from before 2007, which cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from services.embeddings.adapters.extractors.format import Format, Sample, Source, encrypted
from services.embeddings.domain.document import Page
from services.embeddings.domain.errors import ExtractionError

_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_MEDIA_TYPE = "application/x-ole-storage"


def recognise(sample: Sample) -> str | None:
    """The magic number of compound files."""
    return _MEDIA_TYPE if sample.head.startswith(_MAGIC) else None


def read(source: Source) -> Iterator[Page]:
    """Raise the error that says which of the two it is."""
    if _ENCRYPTED in source.path.read_bytes():
        raise encrypted("the Office file cannot be read without a password")
    raise ExtractionError(
        "UNSUPPORTED_MEDIA_TYPE",
        "the file is of a Microsoft program from before 2007, which cannot be read",
        remedy="save it in a format of today, such as DOCX, XLSX, PPTX or PDF",
    )
    yield


FORMAT = Format(name="legacy Office", media_types={}, recognise=recognise, read=read)
