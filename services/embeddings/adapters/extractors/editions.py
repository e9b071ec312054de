"""Which edition of its rules each format is read by, known without the readers, which a worker does not import."""

from __future__ import annotations

from hashlib import sha256

from services.embeddings.domain.file_work import ALL_READERS

_PDF = "application/pdf"

# Raise a number when its reader has learnt to read more, or something otherwise: files of that type are read again.
EDITIONS = {
    "application/epub+zip": 2,
    _PDF: 1,
    "application/rtf": 2,
    "application/vnd.oasis.opendocument.text": 2,
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": 2,
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": 2,
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": 2,
    "application/xhtml+xml": 2,
    "image/bmp": 1,
    "image/gif": 1,
    "image/jpeg": 1,
    "image/png": 1,
    "image/tiff": 1,
    "image/webp": 1,
    "message/rfc822": 2,
    "text/csv": 2,
    "text/html": 2,
    "text/markdown": 1,
    "text/plain": 1,
    "text/rtf": 2,
    "text/tab-separated-values": 2,
}


def readers(pdf_reader: str) -> dict[str, str]:
    """What reads each media type, and all of it together, each told from any other by its text."""
    each = {media_type: str(edition) for media_type, edition in EDITIONS.items()}
    each[_PDF] = f"{pdf_reader} {each[_PDF]}"
    return {**each, ALL_READERS: sha256(repr(sorted(each.items())).encode()).hexdigest()[:16]}
