"""The one place where text from outside is made storable.

PostgreSQL rejects U+0000 and lone surrogates; other control characters are noise to a reader and a model.
Sanitise before counting offsets, so that every offset refers to the stored text.
"""

from __future__ import annotations

import re

FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def is_plain(text: str) -> bool:
    """Whether the text has none but visible characters, spaces, tabs and ``\\n``: quickly told, and true of most."""
    return text.replace("\n", "").replace("\t", "").isprintable()


def sanitise(text: str) -> str:
    """Return ``text`` without NUL, C0 controls (except tab and newline), DEL and lone surrogates.

    Line ends become ``\\n``.
    """
    return FORBIDDEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
