"""Where an answer ended, for the next to go on: which question, in which space, and which results were given.

So the next page repeats none of them and loses none of the others, whatever has changed in the index meanwhile.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256

from services.chassis.kernel.errors import ConflictError, InvalidInputError

REACH = 1_000
"""Results that pages reach together."""

_FORMAT = 2
_DIGEST_BYTES = 12
_MARK_BYTES = 8
_HEAD_BYTES = 1 + 2 * _DIGEST_BYTES

CURSOR_MAX_CHARACTERS = 4 * -(-(_HEAD_BYTES + _MARK_BYTES * (REACH - 1)) // 3)


@dataclass(frozen=True, slots=True)
class Cursor:
    """``str(cursor)`` is what callers see; ``parse`` reads it.

    Attributes:
        asked: the digest of the question and all its criteria.
        space: the digest of the embedding space's name.
        given: the marks of the results before, up to 999 of them.
    """

    asked: bytes
    space: bytes
    given: tuple[bytes, ...]

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Read a cursor. Raises InvalidInputError ``INVALID_CURSOR`` for what is none."""
        try:
            raw = urlsafe_b64decode(text)
        except (ValueError, binascii.Error):
            raw = b""
        digests, marks = raw[1:_HEAD_BYTES], raw[_HEAD_BYTES:]
        is_whole = len(raw) >= _HEAD_BYTES and len(marks) % _MARK_BYTES == 0
        if raw[:1] != bytes([_FORMAT]) or not is_whole or len(marks) >= REACH * _MARK_BYTES:
            raise InvalidInputError(
                "INVALID_CURSOR", "after is no cursor", where="after", remedy="give next of the answer before"
            )
        given = tuple(marks[at : at + _MARK_BYTES] for at in range(0, len(marks), _MARK_BYTES))
        return cls(digests[:_DIGEST_BYTES], digests[_DIGEST_BYTES:], given)

    def __str__(self) -> str:
        return urlsafe_b64encode(bytes([_FORMAT]) + self.asked + self.space + b"".join(self.given)).decode()

    def require(self, asked: bytes, space: bytes) -> None:
        """Check that the question is the same.

        Raises:
            InvalidInputError: ``CURSOR_MISMATCH`` when the question or a criterion is another one.
            ConflictError: ``CURSOR_EXPIRED`` when another embedding space is active.
        """
        if self.asked != asked:
            raise InvalidInputError(
                "CURSOR_MISMATCH",
                "after belongs to another question or other criteria",
                where="after",
                remedy="repeat all parameters of the question that it was given for, or leave it out",
            )
        if self.space != space:
            raise ConflictError(
                "CURSOR_EXPIRED",
                "another embedding space is active since",
                where="after",
                remedy="begin again without after",
            )


def digest(*parts: object) -> bytes:
    """The same for equal parts: numbers, texts, moments, and tuples and data classes of them."""
    return sha256(repr(parts).encode()).digest()[:_DIGEST_BYTES]


def mark(*parts: object) -> bytes:
    """What a result is told by in a cursor: as short as keeps a thousand apart."""
    return digest(*parts)[:_MARK_BYTES]
