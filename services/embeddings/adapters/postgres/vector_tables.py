"""The tables that hold vectors, of the chunks of files and of each type of resource, as statements name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from services.chassis.postgres.templates import fill, identifier, literal, load_template
from services.chassis.resource_types import ResourceType
from services.embeddings.application.space_ports import FILES


@dataclass(frozen=True, slots=True)
class VectorTable:
    """A table of vectors. ``kind`` is ``file`` or the type of resource; ``parts`` fill the templates."""

    kind: str
    parts: Mapping[str, str]

    def statement(self, template: str) -> str:
        """The statement ``sql/templates/<template>.sql`` for this table."""
        return fill(load_template("services.embeddings", template), self.parts)


def vector_tables(types: Mapping[str, ResourceType]) -> dict[str, VectorTable]:
    """All of them, by kind."""
    chunks = VectorTable(
        FILES,
        {
            "name": literal("module_embeddings_file_chunk"),
            "table": identifier("module_embeddings_file_chunk"),
            "same": "made.file_id = active.file_id AND made.position = active.position",
            "text": "text",
            "columns": "file_id, tenant_id, position, page_from, page_to, char_start, char_end, text, text_hash, "
            "declared_language",
            "owner": "file_id",
            "mirror": identifier("module_embeddings_files_file"),
            "of_type": "true",
        },
    )
    resources = (
        VectorTable(
            type_.name,
            {
                "name": literal(type_.table),
                "table": identifier(type_.table),
                "same": "made.entity_id = active.entity_id",
                "text": "embedding_text",
                "columns": "entity_id, tenant_id, name, embedding_text, text_hash",
                "owner": "entity_id",
                "mirror": identifier("module_embeddings_resource"),
                "of_type": f"entity_type = {literal(type_.name)}",
            },
        )
        for type_ in types.values()
    )
    return {table.kind: table for table in (chunks, *resources)}
