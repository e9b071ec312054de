"""The tables and views of the types of resources, derived from their declarations.

Nothing is ever dropped here but views: a field or a type that is declared no more leaves its column or its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import asyncpg

from services.chassis.kernel.errors import ConfigurationError
from services.chassis.postgres.templates import fill, identifier, literal, load_template
from services.chassis.resource_types import FieldKind, ResourceType

CONTEXT_COLUMNS = {
    "entity_id": "bigint",
    "tenant_id": "text",
    "name": "text",
    "revision": "bigint",
    "updated_at": "timestamp with time zone",
    "reads": "text[]",
}
"""What every context view must expose, besides what its template uses."""

_COLUMNS = """
SELECT attname, format_type(atttypid, NULL) AS type
FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
"""


def source_table(type_: ResourceType) -> str:
    """The catalogue's table of the type, with a column for each field."""
    table = type_.source_table
    columns = (
        f"ALTER TABLE {identifier(table)} ADD COLUMN IF NOT EXISTS {identifier(field.name)} {field.column_type};"
        for field in type_.fields
    )
    # Who refers to this row? A context that shows it asks so.
    indexes = (
        f"CREATE INDEX IF NOT EXISTS {identifier(f'{table}_{field.name}')} ON {identifier(table)}"
        f" USING gin ({identifier(field.name)});"
        for field in type_.fields
        if field.kind is FieldKind.REFERENCES
    )
    parts = {
        "source_table": identifier(table),
        "source_table_tenant": identifier(f"{table}_tenant"),
        "columns": "\n".join(columns),
        "indexes": "\n".join(indexes),
    }
    return fill(load_template("services.files", "source_table"), parts)


def vector_table(type_: ResourceType) -> str:
    """The table of vectors of the type."""
    table = type_.table
    parts = {
        "type": literal(type_.name),
        "table": identifier(table),
        "table_tenant": identifier(f"{table}_tenant"),
        "table_entity": identifier(f"{table}_entity"),
        "table_embedding": identifier(f"{table}_embedding"),
    }
    return fill(load_template("services.embeddings", "table"), parts)


async def check_source_columns(connection: asyncpg.Connection, type_: ResourceType) -> None:
    """Refuse a field whose kind changed: its column holds values of another type.

    Raises:
        ConfigurationError: ``RESOURCE_TYPE_CHANGED``.
    """
    columns = await _columns(connection, type_.source_table)
    for field in type_.fields:
        if columns[field.name] != field.column_type:
            raise ConfigurationError(
                "RESOURCE_TYPE_CHANGED",
                f"the column {field.name} of {type_.source_table} is {columns[field.name]}, "
                f"but the declaration says {field.column_type}",
                where=f"{type_.name}/declaration.toml: fields.{field.name}.kind",
                remedy="give the field another name, or alter the column by hand first",
            )


async def apply_views(connection: asyncpg.Connection, types: Mapping[str, ResourceType]) -> None:
    """Make the context views and the two views over all types, as they are declared now.

    Raises:
        ConfigurationError: ``RESOURCE_TYPE_INVALID`` for a context that is no SELECT or lacks a column.
    """
    await connection.execute("DROP VIEW IF EXISTS module_embeddings_resource_context")
    for type_ in types.values():
        await connection.execute(f"DROP VIEW IF EXISTS {identifier(type_.context_view)}")
        await _create_context_view(connection, type_)
    package = "services.embeddings"
    arms = {
        "context_arms": _union(load_template(package, "context_arm"), types.values()),
        "unified_arms": _union(load_template(package, "unified_arm"), types.values()),
    }
    await connection.execute(fill(load_template(package, "unified"), arms))


async def _create_context_view(connection: asyncpg.Connection, type_: ResourceType) -> None:
    where = f"{type_.name}/context.sql"
    view = identifier(type_.context_view)
    template = load_template("services.embeddings", "context_view")
    try:
        # As a prepared statement, so that it is one statement whatever the file holds.
        await connection.fetch(fill(template, {"context_view": view, "select": type_.context_sql}))
    except asyncpg.PostgresError as error:
        raise _invalid(f"it makes no view: {error}", where) from error
    columns = await _columns(connection, type_.context_view)
    for name, expected in CONTEXT_COLUMNS.items():
        if columns.get(name) != expected:
            raise _invalid(f"it must give a column {name} of type {expected}", where)
    await connection.execute(f"GRANT SELECT ON {view} TO cauce_embeddings")


def _union(arm: str, types: Iterable[ResourceType]) -> str:
    return "UNION ALL\n".join(
        fill(arm, {name: make(type_) for name, make in _ARM_PARTS.items()}) for type_ in types
    ).rstrip()


_ARM_PARTS: Mapping[str, Callable[[ResourceType], str]] = {
    "type": lambda type_: literal(type_.name),
    "table": lambda type_: identifier(type_.table),
    "context_view": lambda type_: identifier(type_.context_view),
}


async def _columns(connection: asyncpg.Connection, relation: str) -> dict[str, str]:
    return {row["attname"]: row["type"] for row in await connection.fetch(_COLUMNS, relation)}


def _invalid(message: str, where: str) -> ConfigurationError:
    return ConfigurationError("RESOURCE_TYPE_INVALID", message, where=where, remedy="correct the file")
