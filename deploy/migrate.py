"""Brings a database to what this release and the declared types of resources need."""

from __future__ import annotations

from pathlib import Path

from services.chassis.kernel.errors import UnavailableError
from services.chassis.postgres.faults import DATABASE_AWAY
from services.chassis.postgres.migrations import migrate
from services.chassis.resource_types import DEFAULT_FOLDER, load_resource_types
from services.embeddings.application.text_recipes import build_recipes


async def migrate_database(admin_url: str, resource_types_dir: Path | None = None) -> list[str]:
    """Apply what is missing. Returns the names of the steps.

    Args:
        admin_url: of a role that may make roles, extensions and tables.
        resource_types_dir: the folder of the declarations, None for those of the release.

    Raises:
        ConfigurationError: a declaration, context or template is wrong, or a migration was edited. Nothing is changed,
            so no worker meets a template that it cannot read.
        UnavailableError: ``DATABASE_UNAVAILABLE``, or ``SCHEMA_IN_USE`` while others hold what is to be changed.
    """
    folder = resource_types_dir or DEFAULT_FOLDER
    build_recipes(load_resource_types(folder))
    try:
        return await migrate(admin_url, folder)
    except DATABASE_AWAY as error:
        raise UnavailableError(
            "DATABASE_UNAVAILABLE", f"{type(error).__name__}: {error}", remedy="look at its address, and try again"
        ) from error
