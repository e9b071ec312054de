"""The options that narrow a search, and what they are on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import typer

FileIds: TypeAlias = Annotated[
    list[int] | None, typer.Option("--file-id", metavar="ID", help="Only this file; give it again for more.")
]
MediaTypes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--media-type", metavar="TYPE", help="Only files of this media type; give it again for more."),
]
Languages: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--language", metavar="TAG", help="Only texts in this language: es, en, und; give it again for more."),
]
CreatedFrom: TypeAlias = Annotated[
    str | None,
    typer.Option("--created-from", metavar="MOMENT", help="Only files made then or later: 2026-01-31T00:00Z."),
]
CreatedBefore: TypeAlias = Annotated[
    str | None, typer.Option("--created-before", metavar="MOMENT", help="Only files made before.")
]
Types: TypeAlias = Annotated[
    list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type; give it again for more.")
]
EntityIds: TypeAlias = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="ID", help="Only this resource of the one type; give it again for more."),
]
UpdatedFrom: TypeAlias = Annotated[
    str | None,
    typer.Option("--updated-from", metavar="MOMENT", help="Only resources indexed then or later: 2026-01-31T00:00Z."),
]
UpdatedBefore: TypeAlias = Annotated[
    str | None, typer.Option("--updated-before", metavar="MOMENT", help="Only resources indexed before.")
]
TopN: TypeAlias = Annotated[int | None, typer.Option("--top-n", metavar="N", help="How many at most.")]
MinScore: TypeAlias = Annotated[
    float | None, typer.Option("--min-score", metavar="X", help="Leave out what is below this score, -1 to 1.")
]
After: TypeAlias = Annotated[
    str | None, typer.Option("--after", metavar="CURSOR", help="The next page: `next` of the --json answer before.")
]


def file_filters(
    file_ids: list[int] | None,
    media_types: list[str] | None,
    languages: list[str] | None,
    created_from: str | None,
    created_before: str | None,
) -> Mapping[str, object]:
    """The filters of passages; those that are not given are None."""
    return {
        "fileIds": file_ids or None,
        "mediaTypes": media_types or None,
        "languages": languages or None,
        "createdFrom": created_from,
        "createdBefore": created_before,
    }


def resource_filters(
    types: list[str] | None,
    entity_ids: list[int] | None,
    languages: list[str] | None,
    updated_from: str | None,
    updated_before: str | None,
) -> Mapping[str, object]:
    """The filters of resources; those that are not given are None."""
    return {
        "entityTypes": types or None,
        "entityIds": entity_ids or None,
        "languages": languages or None,
        "updatedFrom": updated_from,
        "updatedBefore": updated_before,
    }
