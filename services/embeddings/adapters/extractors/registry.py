"""Finds the format of a file by its content first and its name second, and reads it within the limits."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from email.message import Message
from functools import cache
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from pathlib import Path, PurePath
from zipfile import BadZipFile, ZipFile, ZipInfo

from services.embeddings.adapters import extractors
from services.embeddings.adapters.extractors.encoding import is_text
from services.embeddings.adapters.extractors.format import Format, Sample, Source, corrupt
from services.embeddings.adapters.extractors.limits import ExtractionLimits, limit_behind
from services.embeddings.domain.document import Page, PageImage
from services.embeddings.domain.errors import ExtractionError, ResourceLimitError
from services.embeddings.domain.placed_text import sanitised

HEAD_BYTES = 64 * 1024
PLAIN_TEXT = "text/plain"

# What is recognised only to say what it is.
_ARCHIVES = {
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "gzip data",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"Rar!": "a RAR archive",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data",
}
_ARCHIVE_SUFFIXES = {".zip", ".gz", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".tar"}
_UNREADABLE = _ARCHIVES | {
    b"\xd7\xcd\xc6\x9a": "a WMF image",
    b"\x7fELF": "a program",
    b"MZ": "a program",
    b"ID3": "sound",
    b"OggS": "sound or video",
    b"\x1aE\xdf\xa3": "video",
}


@cache
def declared_formats() -> tuple[Format, ...]:
    """Every format that a module of this package declares, by module name."""
    names = (f"{extractors.__name__}.{module.name}" for module in pkgutil.iter_modules(extractors.__path__))
    modules = [import_module(name) for name in names]
    return tuple(module.FORMAT for module in modules if hasattr(module, "FORMAT"))


@cache
def formats(options: frozenset[str] = frozenset()) -> tuple[Format, ...]:
    """The usual formats, but for those whose media types a format chosen by ``options`` reads instead."""
    chosen = tuple(found for found in declared_formats() if found.option in options)
    taken = {media_type for found in chosen for media_type in found.media_types}
    usual = (found for found in declared_formats() if not found.option and not taken & found.media_types.keys())
    return (*chosen, *usual)


def supported_media_types() -> list[str]:
    """Every media type that can be read, in alphabetical order."""
    return sorted(media_type for found in formats() for media_type in found.media_types)


def read_document(
    path: Path, *, name: str, media_type: str, limits: ExtractionLimits, options: frozenset[str] = frozenset()
) -> tuple[str, Iterator[Page]]:
    """The media type that the file is, and its pages: sanitised, in order and within the limits, read one by one.

    An empty file is an empty document of the type that it is said to be. ``options`` choose formats.

    Raises:
        ExtractionError: at once or while the pages are read.
    """
    opened = _open(path, name, media_type, limits, options)
    if opened is None:
        return media_type, iter(())
    found, source = opened
    return source.media_type, _pages(found, source)


def render_page(
    path: Path,
    *,
    name: str,
    media_type: str,
    limits: ExtractionLimits,
    options: frozenset[str] = frozenset(),
    number: int,
    size: int,
) -> tuple[str, Page]:
    """The media type that the file is, and the page of that number without text, shown by its one image, a PNG.

    The image's longer side has at most ``size`` pixels.

    Raises:
        ExtractionError: also ``PAGE_NOT_FOUND``, and ``NO_PAGES`` in a format whose pages cannot be shown.
    """
    opened = _open(path, name, media_type, limits, options)
    if opened is None or opened[0].render is None:
        what = "an empty file" if opened is None else f"a file of the format {opened[0].name}"
        raise ExtractionError("NO_PAGES", f"{what} has no pages that can be shown")
    found, source = opened
    file = BytesIO()
    with _corrupt_otherwise(found):
        image = opened[0].render(source, number, size)
        image.save(file, "PNG")
    data = file.getvalue()
    shown = PageImage(sha256(data).hexdigest(), "image/png", data, image.width, image.height)
    return source.media_type, Page(number, "", (shown,))


def _open(
    path: Path, name: str, media_type: str, limits: ExtractionLimits, options: frozenset[str]
) -> tuple[Format, Source] | None:
    """The file's format, and the file as its reader takes it; None for an empty file."""
    limits.require("input_bytes", path.stat().st_size)
    sample = _sample(path)
    if not sample.head:
        return None
    declaration = Message()
    declaration["Content-Type"] = media_type
    declared = media_type.partition(";")[0].strip().lower()
    if (resolved := _resolve(formats(options), sample, PurePath(name).suffix.lower(), declared)) is None:
        if sample.members:
            _refuse_bomb(path, limits)
        raise _unsupported(sample, declared)
    found, actual = resolved
    return found, Source(path, actual, limits, declaration.get_content_charset())


def _sample(path: Path) -> Sample:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(b"PK"):
        try:
            with ZipFile(path) as archive:
                members = frozenset(archive.namelist())
                mimetype = archive.open("mimetype").read(100) if "mimetype" in members else b""
            return Sample(head, members, mimetype.decode("ascii", "replace").strip())
        except (BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError):
            pass
    return Sample(head)


def _resolve(candidates: Sequence[Format], sample: Sample, suffix: str, declared: str) -> tuple[Format, str] | None:
    for candidate in candidates:
        if media_type := candidate.recognise(sample):
            return candidate, media_type
    by_name = [(candidate, candidate.media_type_of(suffix=suffix)) for candidate in candidates]
    by_declaration = [(candidate, candidate.media_type_of(declared=declared)) for candidate in candidates]
    hints = [(candidate, media_type) for candidate, media_type in by_name + by_declaration if media_type]
    text_expected = declared.startswith("text/") or any(candidate.is_text for candidate, _ in hints)
    has_text = is_text(sample.head, expected=text_expected)
    # A format whose content would have been recognised is still tried: its reader says what is wrong with the file.
    matching = [(candidate, media_type) for candidate, media_type in hints if candidate.is_text == has_text]
    if not matching and has_text:
        matching = [(candidate, PLAIN_TEXT) for candidate in candidates if PLAIN_TEXT in candidate.media_types]
    return matching[0] if matching else None


def _refuse_bomb(path: Path, limits: ExtractionLimits) -> None:
    """Raise ResourceLimitError for an archive that unpacks to more than is read, or that holds archives."""
    documents = {suffix for found in formats() for suffixes in found.media_types.values() for suffix in suffixes}
    with ZipFile(path) as archive:
        members = archive.infolist()
        limits.require("unpacked_bytes", sum(member.file_size for member in members))
        for member in members:
            suffix = PurePath(member.filename).suffix.lower()
            if suffix in _ARCHIVE_SUFFIXES or (suffix not in documents and _beginning(archive, member) in _ARCHIVES):
                raise ResourceLimitError("nesting", "the file is an archive that holds archives, which are not opened")


def _beginning(archive: ZipFile, member: ZipInfo) -> bytes:
    with suppress(BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError), archive.open(member) as file:
        head = file.read(8)
        return next((magic for magic in _ARCHIVES if head.startswith(magic)), b"")
    return b""


def _unsupported(sample: Sample, declared: str) -> ExtractionError:
    what = next(
        (label for magic, label in _UNREADABLE.items() if sample.head.startswith(magic)),
        "binary content of no known type",
    )
    return ExtractionError(
        "UNSUPPORTED_MEDIA_TYPE",
        f"the file is {what} (declared as {declared or 'nothing'}), which cannot be read",
        remedy=f"send one of: {', '.join(supported_media_types())}",
    )


def _pages(found: Format, source: Source) -> Iterator[Page]:
    """The pages, counted against the limits."""
    characters = images = 0
    pages = found.read(source)
    for count in range(1, source.limits.pages + 2):
        try:
            with _corrupt_otherwise(found):
                page = next(pages)
        except StopIteration:
            return
        page = sanitised(page)
        characters += len(page.text)
        images += len(page.images)
        source.limits.require("pages", count)
        source.limits.require("characters", characters)
        source.limits.require("images", images)
        yield page


@contextmanager
def _corrupt_otherwise(found: Format) -> Iterator[None]:
    """Whatever a reader raises besides our own errors means a broken file."""
    try:
        yield
    except (StopIteration, ExtractionError, MemoryError):
        raise
    except Exception as error:
        if limit := limit_behind(error):
            raise limit from error
        raise corrupt(f"the {found.name} file cannot be read ({type(error).__name__}: {error})"[:500]) from error
