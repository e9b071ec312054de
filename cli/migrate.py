"""``cauce migrate``: a database of your own brought to what this release needs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from cli.up import saying_faults


def migrate(
    database_url: Annotated[
        str,
        typer.Option(
            envvar="CAUCE_ADMIN_DATABASE_URL",
            metavar="URL",
            help="postgresql://... of a role that may make roles, extensions and tables.",
        ),
    ],
    resource_types: Annotated[
        Path | None,
        typer.Option(envvar="CAUCE_RESOURCE_TYPES_DIR", metavar="DIR", help="Declared types; those of the release."),
    ] = None,
) -> None:
    """Apply what the release and the declared types need; restart the services after a type was added or changed.

    The stack of `cauce up` does this by itself when it starts.
    """
    # Here, because the other commands need no database driver.
    from deploy.migrate import migrate_database  # noqa: PLC0415

    with saying_faults():
        steps = asyncio.run(migrate_database(database_url, resource_types))
    for step in steps:
        typer.echo(step)
    typer.echo(f"{len(steps)} steps applied", err=True)
