"""Filters as parameters of a search, the same wherever passages or resources are looked for."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from services.search.domain.criteria import ChunkFilter, ResourceFilter


def _written_out(value: object) -> object:
    """A date or a bare number is no moment; read as one, 2020 would be a second of 1970."""
    if value is not None and not (isinstance(value, str) and "T" in value.upper()):
        raise ValueError("write a moment like 2026-01-31T12:00:00Z")
    return value


Moment: TypeAlias = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_written_out)]

_CONFIG = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True)


class LanguageFilterParameters(BaseModel):
    """The filter that passages and resources share."""

    model_config = _CONFIG

    languages: list[str] | None = Field(
        default=None,
        description="Texts in one of these languages only, like es, en or fr; und where it could not be told.",
        max_length=1000,
    )


class ChunkFilterParameters(LanguageFilterParameters):
    """Which passages are looked at."""

    file_ids: list[int] | None = Field(default=None, description="Look into these files only.", max_length=1000)
    media_types: list[str] | None = Field(
        default=None, description="Files of one of these media types only.", max_length=1000
    )
    created_from: Moment | None = Field(default=None, description="Files made at this moment or later only.")
    created_before: Moment | None = Field(default=None, description="Files made before this moment only.")

    def chunk_filter(self) -> ChunkFilter:
        """The same, checked. Raises InvalidInputError ``INVALID_REQUEST``."""
        return ChunkFilter(
            tuple(self.file_ids or ()),
            tuple(self.media_types or ()),
            tuple(self.languages or ()),
            self.created_from,
            self.created_before,
        )


class ResourceFilterParameters(LanguageFilterParameters):
    """Which resources are looked at."""

    entity_types: list[str] | None = Field(
        default=None, description="Look among these types only; all types when left out or empty.", max_length=100
    )
    entity_ids: list[int] | None = Field(
        default=None,
        description="Resources with one of these ids only; of one type, named in entityTypes.",
        max_length=1000,
    )
    updated_from: Moment | None = Field(
        default=None, description="Resources whose vector was written at this moment or later only."
    )
    updated_before: Moment | None = Field(
        default=None, description="Resources whose vector was written before this moment only."
    )

    def resource_filter(self) -> ResourceFilter:
        """The same, checked. Raises InvalidInputError ``INVALID_REQUEST``."""
        return ResourceFilter(
            tuple(self.entity_ids or ()), tuple(self.languages or ()), self.updated_from, self.updated_before
        )
