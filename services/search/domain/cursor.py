"""Where an answer ended, for the next to go on: which question, in which space, after how many and which results.

It holds as long as the results before it are the same, in the same order; then a page repeats and loses nothing,
whatever changed behind them.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from services.chassis.kernel.errors import ConflictError, InvalidInputError

REACH = 1_000
"""Results that pages reach together."""

_FORMAT = 1
_DIGEST_BYTES = 12


@dataclass(frozen=True, slots=True)
class Cursor:
    """``str(cursor)`` is what callers see; ``parse`` reads it.

    Attributes:
        offset: how many results came before, 1 to 999.
        asked: the digest of the question and all its criteria.
        space: the digest of the embedding space's name.
        given: the digest of the results before, in order.
    """

    offset: int
    asked: bytes
    space: bytes
    given: bytes

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Read a cursor. Raises InvalidInputError ``INVALID_CURSOR`` for what is none."""
        try:
            raw = urlsafe_b64decode(text)
        except (ValueError, binascii.Error):
            raw = b""
        offset = int.from_bytes(raw[1:3], "big")
        if len(raw) != 3 + 3 * _DIGEST_BYTES or raw[0] != _FORMAT or not 0 < offset < REACH:
            raise InvalidInputError(
                "INVALID_CURSOR", "after is no cursor", where="after", remedy="give next of the answer before"
            )
        digests = (raw[at : at + _DIGEST_BYTES] for at in range(3, len(raw), _DIGEST_BYTES))
        return cls(offset, *digests)

    def __str__(self) -> str:
        raw = bytes([_FORMAT]) + self.offset.to_bytes(2, "big") + self.asked + self.space + self.given
        return urlsafe_b64encode(raw).decode()

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
            raise _expired("another embedding space is active")

    def require_given(self, identities: Iterable[object]) -> None:
        """Check that the results before are the same. Raises ConflictError ``CURSOR_EXPIRED``."""
        if self.given != digest(*identities):
            raise _expired("the index has changed among the results before")


def digest(*parts: object) -> bytes:
    """The same for equal parts: numbers, texts, moments, and tuples and data classes of them."""
    return sha256(repr(parts).encode()).digest()[:_DIGEST_BYTES]


def _expired(reason: str) -> ConflictError:
    return ConflictError("CURSOR_EXPIRED", f"{reason} since", where="after", remedy="begin again without after")
