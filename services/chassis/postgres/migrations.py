"""Brings a database to the present schema, and tells processes whether it has been.

It is safe to run again, and while the previous release runs. Migrations run once, in order, and are frozen by a
checksum; the tables of the types of resources are brought up to their declarations; views and grants are applied again
each time. All of a run is one transaction under one lock: it happens whole or not at all. Where a transaction of others
holds a table that it changes, it steps back and tries again: whoever comes after it in the line for that table would
wait as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import asyncpg

from services.chassis.kernel.errors import ConfigurationError, UnavailableError
from services.chassis.observability.logs import get_logger
from services.chassis.postgres import resource_tables
from services.chassis.postgres.connection import connect
from services.chassis.postgres.faults import database_refused, not_migrated
from services.chassis.resource_types import DEFAULT_FOLDER, ResourceType, load_resource_types

LOCK_SECONDS = 2.0
"""How long a migration stands in the line for a table."""
LOCK_TRIES = 30
PROBE_SECONDS = 2.0
_REST_SECONDS = 1.0

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('cauce_migration', 0))"
_HISTORY = """
CREATE TABLE IF NOT EXISTS cauce_migration (
    service    text        NOT NULL,
    name       text        NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (service, name)
);
CREATE OR REPLACE VIEW cauce_migration_read AS SELECT service, name FROM cauce_migration;
GRANT SELECT ON cauce_migration_read TO cauce_files, cauce_embeddings, cauce_search
"""
_MISSING = """
SELECT array_agg(needed) FROM unnest($1::text[]) AS needed
WHERE needed NOT IN (SELECT service || '/' || name FROM cauce_migration_read)
"""
_RECORD = """
INSERT INTO cauce_migration (service, name, checksum) VALUES ($1, $2, $3)
ON CONFLICT (service, name) DO UPDATE SET checksum = excluded.checksum, applied_at = now()
"""
_TYPE_TABLES = "SELECT service, name FROM cauce_migration WHERE name LIKE 'resource_type/%' ORDER BY name"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Script:
    """SQL that is applied once. A ``frozen`` one must never change, another is applied again when it did."""

    service: str
    name: str
    sql: str
    frozen: bool = True

    @property
    def checksum(self) -> str:
        """SHA-256 of the text."""
        return sha256(self.sql.encode()).hexdigest()


async def migrate(admin_url: str, resource_types_dir: Path = DEFAULT_FOLDER) -> list[str]:
    """Apply what is missing, as the role that will own the tables.

    A type of resource that is not declared any more keeps its tables and what is in them; that is logged.

    Args:
        admin_url: the address of the database, as the role that will own the tables.
        resource_types_dir: the folder of the types of resources.

    Returns:
        The migrations and tables of types applied now, as ``service/name``.

    Raises:
        ConfigurationError: ``MIGRATION_CHANGED`` when a migration that ran was edited since; ``RESOURCE_TYPE_INVALID``
            and ``RESOURCE_TYPE_CHANGED`` for a declaration that cannot be followed; ``DATABASE_REFUSED`` and
            ``DATABASE_ADDRESS_INVALID``.
        UnavailableError: ``SCHEMA_IN_USE`` when a table was held for as long as it was tried for. Nothing is changed.
    """
    types = load_resource_types(resource_types_dir)
    try:
        connection = await connect(admin_url, timeout=30)
    except (asyncpg.PostgresError, ValueError) as error:
        if refusal := database_refused(error, "CAUCE_ADMIN_DATABASE_URL"):
            raise refusal from error
        raise
    fault: Exception | None = None
    try:
        for _ in range(LOCK_TRIES):
            try:
                return await _migrate(connection, types)
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
                fault = error
                _log.warning("migration_waits_for_a_table", error=str(error))
                await asyncio.sleep(_REST_SECONDS)
        raise UnavailableError(
            "SCHEMA_IN_USE",
            f"transactions of others hold what is to be changed: {fault}",
            remedy="end long transactions (pg_stat_activity), and run `cauce migrate` again",
        ) from fault
    finally:
        connection.terminate()


async def database_fault(pool: asyncpg.Pool, *, writes: bool = True) -> str | None:
    """A readiness check: what the database lacks, None if nothing; who only reads is content with a read-only one.

    Raises TimeoutError, and what the driver raises.
    """
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await require_migrated(pool)
            if writes and await pool.fetchval("SELECT current_setting('transaction_read_only')::boolean"):
                return "the database is read-only"
    except UnavailableError as error:
        return str(error)
    return None


async def require_migrated(pool: asyncpg.Pool) -> None:
    """Return if the database has all migrations of this release. It may have more; tables of types are not looked at.

    Raises UnavailableError ``SCHEMA_MISSING``.
    """
    try:
        missing = await pool.fetchval(_MISSING, _needed())
    except asyncpg.UndefinedTableError as error:
        raise not_migrated(str(error)) from error
    if missing is not None:
        raise not_migrated(", ".join(missing))


@cache
def _needed() -> list[str]:
    services = ("files", "embeddings", "search")
    return [f"{service}/{script.name}" for service in services for script in _files(service, "migrations")]


async def _migrate(connection: asyncpg.Connection, types: Mapping[str, ResourceType]) -> list[str]:
    async with connection.transaction():
        await connection.execute(_LOCK)
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        await connection.execute((files("deploy") / "roles.sql").read_text(encoding="utf-8"))
        await connection.execute(_HISTORY)
        return await _migrate_services(connection, types)


async def _migrate_services(connection: asyncpg.Connection, types: Mapping[str, ResourceType]) -> list[str]:
    """The services in order: later ones may read the views of earlier ones."""
    applied = [
        *await _apply_all(connection, _files("files", "migrations")),
        *await _apply_all(connection, _type_tables("files", types)),
    ]
    for type_ in types.values():
        await resource_tables.check_source_columns(connection, type_)
    await _repeat(connection, "files")

    applied += await _apply_all(connection, _files("embeddings", "migrations"))
    applied += await _apply_all(connection, _type_tables("embeddings", types))
    await resource_tables.apply_views(connection, types)
    await _repeat(connection, "embeddings")

    applied += await _apply_all(connection, _files("search", "migrations"))
    await _repeat(connection, "search")
    await _report_undeclared(connection, types)
    return applied


def _files(service: str, folder: str) -> Iterator[Script]:
    directory: Traversable = files(f"services.{service}") / "sql" / folder
    if directory.is_dir():
        for file in sorted(directory.iterdir(), key=lambda entry: entry.name):
            if file.name.endswith(".sql"):
                yield Script(service, file.name, file.read_text(encoding="utf-8"))


def _type_tables(service: str, types: Mapping[str, ResourceType]) -> Iterator[Script]:
    make = {"files": resource_tables.source_table, "embeddings": resource_tables.vector_table}[service]
    for type_ in types.values():
        yield Script(service, f"resource_type/{type_.name}", make(type_), frozen=False)


async def _repeat(connection: asyncpg.Connection, service: str) -> None:
    """Apply the views and grants of a service, which may be there already."""
    for script in _files(service, "views"):
        await connection.execute(script.sql)
    grants = files(f"services.{service}") / "sql" / "grants.sql"
    await connection.execute(grants.read_text(encoding="utf-8"))


async def _apply_all(connection: asyncpg.Connection, scripts: Iterator[Script]) -> list[str]:
    """Run those that did not run yet. Return their names."""
    return [f"{script.service}/{script.name}" for script in scripts if await _apply(connection, script)]


async def _apply(connection: asyncpg.Connection, script: Script) -> bool:
    applied = await connection.fetchval(
        "SELECT checksum FROM cauce_migration WHERE service = $1 AND name = $2", script.service, script.name
    )
    if applied == script.checksum:
        return False
    if applied is not None and script.frozen:
        raise ConfigurationError(
            "MIGRATION_CHANGED",
            f"the migration {script.service}/{script.name} was edited after it ran",
            remedy="restore it and write a new migration",
        )
    await connection.execute(script.sql)
    await connection.execute(_RECORD, script.service, script.name, script.checksum)
    return True


async def _report_undeclared(connection: asyncpg.Connection, types: Mapping[str, ResourceType]) -> None:
    for row in await connection.fetch(_TYPE_TABLES):
        name = row["name"].removeprefix("resource_type/")
        if name not in types:
            _log.warning(
                "resource_type_undeclared",
                type=name,
                service=row["service"],
                effect="its table stays as it is; its events are not taken and it is not searched",
                remedy="declare it again, or drop its tables and its rows in cauce_migration by hand",
            )
