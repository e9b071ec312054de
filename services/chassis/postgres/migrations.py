"""Brings a database to the present schema. Safe to run again, and while the previous release runs.

Migrations run once, in order, and are frozen by a checksum; views and grants are applied again each time.
All of a run is one transaction under one lock: it happens whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

import asyncpg

from services.chassis.kernel.errors import ConfigurationError

# Later services may read the views of earlier ones.
SERVICES = ("files", "embeddings", "search")

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('cauce_migration', 0))"
_HISTORY = """
CREATE TABLE IF NOT EXISTS cauce_migration (
    service    text        NOT NULL,
    name       text        NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (service, name)
)
"""


@dataclass(frozen=True, slots=True)
class Script:
    """One SQL file of a service. ``once`` tells a migration from a view or a grant."""

    service: str
    name: str
    sql: str
    once: bool

    @property
    def checksum(self) -> str:
        """SHA-256 of the text."""
        return sha256(self.sql.encode()).hexdigest()


def scripts() -> Iterator[Script]:
    """Every script of every service, in the order in which they are applied."""
    for service in SERVICES:
        root = files(f"services.{service}") / "sql"
        yield from _read(service, root / "migrations", once=True)
        yield from _read(service, root / "views", once=False)
        grants = root / "grants.sql"
        if grants.is_file():
            yield Script(service, "grants.sql", grants.read_text(encoding="utf-8"), once=False)


def _read(service: str, folder: Traversable, *, once: bool) -> Iterator[Script]:
    if folder.is_dir():
        for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if file.name.endswith(".sql"):
                yield Script(service, file.name, file.read_text(encoding="utf-8"), once)


async def migrate(admin_url: str) -> list[str]:
    """Apply what is missing, as the role that will own the tables.

    Returns:
        The migrations applied now, as ``service/name``.

    Raises:
        ConfigurationError: ``MIGRATION_CHANGED`` when a migration that ran was edited since.
    """
    connection = await asyncpg.connect(admin_url, timeout=30)
    try:
        async with connection.transaction():
            await connection.execute(_LOCK)
            await connection.execute((files("deploy") / "roles.sql").read_text(encoding="utf-8"))
            await connection.execute(_HISTORY)
            return [f"{script.service}/{script.name}" for script in scripts() if await _apply(connection, script)]
    finally:
        await connection.close()


async def _apply(connection: asyncpg.Connection, script: Script) -> bool:
    """Run the script unless it is a migration that ran before. Return whether a migration ran now."""
    if not script.once:
        await connection.execute(script.sql)
        return False
    applied = await connection.fetchval(
        "SELECT checksum FROM cauce_migration WHERE service = $1 AND name = $2", script.service, script.name
    )
    if applied == script.checksum:
        return False
    if applied is not None:
        raise ConfigurationError(
            "MIGRATION_CHANGED",
            f"the migration {script.service}/{script.name} was edited after it ran",
            remedy="restore it and write a new migration",
        )
    await connection.execute(script.sql)
    await connection.execute(
        "INSERT INTO cauce_migration (service, name, checksum) VALUES ($1, $2, $3)",
        script.service,
        script.name,
        script.checksum,
    )
    return True
