"""The text of a resource and the parts that it is embedded in. Nothing is ever cut off."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from services.chassis.kernel.errors import CauceError
from services.embeddings.domain.resource_work import ResourceContext, Source
from services.embeddings.domain.text_template import TextTemplate, ValueUnusableError

MAX_PARTS = 100

_SOURCE = re.compile(r"([a-z_]+):([0-9]{1,19})")
_MAX_ID = 2**63 - 1


class ResourceTextError(CauceError):
    """The resource has no text that could be embedded, and will not have until it changes.

    Codes: ``CONTEXT_INVALID``, ``TEXT_TOO_LONG``.
    """


def hash_text(text: str) -> bytes:
    """SHA-256 of the text: with the embedding space it identifies a vector."""
    return sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True)
class TextRecipe:
    """How texts of one type are made.

    Attributes:
        entity_type: the type's name.
        version: tells this recipe from another of the same type.
        template: the text.
        max_characters: the longest text that is embedded in one piece.
        splits: whether a longer one is embedded in parts; otherwise it is refused.
        reads: the types whose resources a context may look at.
    """

    entity_type: str
    version: str
    template: TextTemplate
    max_characters: int
    splits: bool
    reads: frozenset[str]

    def text(self, entity_id: int, values: Mapping[str, object]) -> str:
        """The text, never blank: a resource of which nothing is known is called by its type and id.

        Raises:
            ResourceTextError: ``CONTEXT_INVALID``.
        """
        try:
            return self.template.render(values) or f"{self.entity_type} {entity_id}"
        except ValueUnusableError as error:
            raise ResourceTextError("CONTEXT_INVALID", str(error), where=self.entity_type) from error

    def sources(self, reads: Iterable[str | None]) -> frozenset[Source]:
        """What a context looked at, read from ``type:id``, as far as the type declares that it reads it."""
        found = (_SOURCE.fullmatch(read) for read in reads if read is not None)
        sources = (Source(match[1], int(match[2])) for match in found if match and match[1] in self.reads)
        return frozenset(source for source in sources if source.entity_id <= _MAX_ID)

    def require_sound(self, context: ResourceContext) -> None:
        """Refuse a context without a revision, or that looks at what the type does not declare: changes would pass by.

        Raises:
            ResourceTextError: ``CONTEXT_INVALID``.
        """
        if context.revision is None:
            raise ResourceTextError("CONTEXT_INVALID", "the context's revision is NULL", where=self.entity_type)
        for read in context.reads:
            if read is not None and not self.sources([read]):
                raise ResourceTextError(
                    "CONTEXT_INVALID",
                    f"the context reads {read!r}, which is no type:id of a type that the declaration says it reads",
                    where=self.entity_type,
                )

    def parts(self, text: str) -> list[str]:
        """The text in pieces that are each embedded whole; one piece where it is short enough.

        Raises:
            ResourceTextError: ``TEXT_TOO_LONG``.
        """
        if len(text) <= self.max_characters:
            return [text]
        parts = list(_split(text, self.max_characters)) if self.splits else []
        if not 0 < len(parts) <= MAX_PARTS:
            limit = self.max_characters * (MAX_PARTS if self.splits else 1)
            raise ResourceTextError(
                "TEXT_TOO_LONG",
                f"the text has {len(text)} characters, more than the {limit} that this type allows",
                where=self.entity_type,
                remedy="shorten the resource, or declare a greater limit for its type",
            )
        return parts


def _split(text: str, limit: int) -> Iterator[str]:
    """Cut at the last end of a line within the limit, else at the last space, else in the middle of a word."""
    while len(text) > limit:
        window = text[: limit + 1]
        end = window.rfind("\n")
        if end <= 0:
            end = window.rfind(" ")
        if end <= 0:
            end = limit
        if part := text[:end].strip():
            yield part
        text = text[end:].lstrip()
    if text:
        yield text
