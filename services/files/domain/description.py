"""What the sender says of a file: its name, its media type and its metadata, each checked once."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from mimetypes import MimeTypes
from typing import Any

from services.chassis.kernel.errors import InvalidInputError

MAX_NAME_CHARACTERS = 255
MAX_MEDIA_TYPE_CHARACTERS = 255
MAX_METADATA_BYTES = 16 * 1024
MAX_METADATA_DEPTH = 20
UNKNOWN_MEDIA_TYPE = "application/octet-stream"

_SEPARATORS = "/\\"
_UNPRINTABLE = {"Cc", "Cs", "Zl", "Zp"}
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = rf'{_WORD}=(?:{_WORD}|"(?:[\t !#-\[\]-~]|\\[\t -~])*")'
_MEDIA_TYPE = re.compile(rf"(?P<essence>{_WORD}/{_WORD})(?P<parameters>(?:[ \t]*;[ \t]*{_PARAMETER})*)")


@dataclass(frozen=True, slots=True)
class FileDescription:
    """A file as its sender describes it. Make it with ``describe``."""

    name: str
    media_type: str
    metadata: Mapping[str, Any]

    def fingerprint(self, content: bytes | None) -> bytes:
        """32 bytes that tell whether two requests ask for the same file; ``content`` is the digest of its bytes."""
        told = json.dumps([self.name, self.media_type, self.metadata], sort_keys=True)
        return sha256(told.encode() + (content or b"")).digest()


def describe(name: str, media_type: str | None, metadata: Any) -> FileDescription:
    """Check what a sender says of a file.

    Args:
        name: 1 to 255 characters; not a path, and printable.
        media_type: RFC 9110 syntax; None to guess it from the name.
        metadata: a JSON object of at most 16 KiB, or None for an empty one.

    Raises:
        InvalidInputError: ``INVALID_NAME``, ``INVALID_MEDIA_TYPE`` or, for the metadata, ``INVALID_REQUEST``.
    """
    checked_name = check_name(name)
    return FileDescription(
        name=checked_name,
        media_type=guess_media_type(checked_name) if media_type is None else check_media_type(media_type),
        metadata=check_metadata({} if metadata is None else metadata),
    )


def check_name(name: str) -> str:
    """Return the name if it is one.

    Raises:
        InvalidInputError: ``INVALID_NAME``.
    """
    fault = _name_fault(name)
    if fault is not None:
        raise InvalidInputError("INVALID_NAME", f"the file name {fault}", where="name", remedy="send another name")
    return name


def _name_fault(name: str) -> str | None:
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        return f"has {len(name)} characters; 1 to {MAX_NAME_CHARACTERS} are allowed"
    if not name.strip():
        return "is blank"
    if name in {".", ".."}:
        return "is the name of a folder"
    if any(character in _SEPARATORS for character in name):
        return "holds a path separator"
    if any(unicodedata.category(character) in _UNPRINTABLE for character in name):
        return "holds a control character, a line separator or half of a surrogate pair"
    return None


def check_media_type(media_type: str) -> str:
    """Return the media type with its type and subtype in lower case.

    Raises:
        InvalidInputError: ``INVALID_MEDIA_TYPE``.
    """
    match = _MEDIA_TYPE.fullmatch(media_type) if len(media_type) <= MAX_MEDIA_TYPE_CHARACTERS else None
    if match is None:
        raise InvalidInputError(
            "INVALID_MEDIA_TYPE",
            f"the media type is not of the form type/subtype, of at most {MAX_MEDIA_TYPE_CHARACTERS} characters",
            where="mediaType",
            remedy="leave it out to have it guessed from the name",
        )
    return match["essence"].lower() + match["parameters"]


def guess_media_type(name: str) -> str:
    """The media type that the name's extension suggests; the same on every machine."""
    return _known_types().guess_type(f"/{name}")[0] or UNKNOWN_MEDIA_TYPE


@cache
def _known_types() -> MimeTypes:
    return MimeTypes(filenames=())


def check_metadata(metadata: Any) -> Mapping[str, Any]:
    """Return the metadata if it is an object that can be stored as JSON.

    Raises:
        InvalidInputError: ``INVALID_REQUEST``.
    """
    fault = _metadata_fault(metadata)
    if fault is not None:
        raise InvalidInputError("INVALID_REQUEST", f"the metadata {fault}", where="metadata")
    checked: Mapping[str, Any] = metadata
    return checked


def _metadata_fault(metadata: Any) -> str | None:
    if not isinstance(metadata, Mapping):
        return "is not a JSON object"
    if not _is_shallow(metadata, MAX_METADATA_DEPTH):
        return f"is nested deeper than {MAX_METADATA_DEPTH} levels"
    if any("\x00" in text for text in _texts(metadata)):
        return "holds a NUL character"
    try:
        size = len(json.dumps(metadata, allow_nan=False, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    except (ValueError, TypeError):
        return "holds a value that JSON does not have"
    if size > MAX_METADATA_BYTES:
        return f"has {size} bytes as JSON; {MAX_METADATA_BYTES} are allowed"
    return None


def _is_shallow(value: Any, levels: int) -> bool:
    if not isinstance(value, Mapping | list):
        return True
    children = value.values() if isinstance(value, Mapping) else value
    return levels > 0 and all(_is_shallow(child, levels - 1) for child in children)


def _texts(value: Any) -> list[str]:
    """Every string in a JSON value, keys too."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, child in value.items() for text in (key, *_texts(child))]
    return [text for child in value for text in _texts(child)] if isinstance(value, list) else []
