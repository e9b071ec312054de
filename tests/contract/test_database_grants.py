"""What each service's role may not do, tried for real on every table, view and sequence that there is.

A service writes its own tables only, reads nothing of another service but what that one publishes, and changes the
shape of nothing. New relations are covered as soon as they exist.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import asyncpg
import pytest

from tests.support.postgres import Database

OWN_PREFIX: Mapping[str, str] = {
    "cauce_embeddings": "module_embeddings_",
    "cauce_search": "module_search_",
    "cauce_files": "module_",  # the files and the catalogue: every module that is not another service's
}
PUBLISHED: Mapping[str, frozenset[str]] = {
    "cauce_files": frozenset({"cauce_migration_read", "module_embeddings_files_status"}),
    "cauce_embeddings": frozenset({"cauce_migration_read"}),
    "cauce_search": frozenset(
        {
            "cauce_migration_read",
            "module_embeddings_chunk_read",
            "module_embeddings_file_read",
            "module_embeddings_index_version_read",
            "module_embeddings_lexical_read",
            "module_embeddings_resource_lexemes_read",
            "module_embeddings_resource_read",
            "module_embeddings_space",
            "module_embeddings_unified",
        }
    ),
}
WRITES = {
    "INSERT": "INSERT INTO {relation} DEFAULT VALUES",
    "UPDATE": "UPDATE {relation} SET {column} = DEFAULT WHERE false",
    "DELETE": "DELETE FROM {relation} WHERE false",
}
CHANGES = {
    "TRUNCATE": "TRUNCATE {relation}",
    "ALTER": "ALTER {kind} {relation} RENAME TO renamed",
    "DROP": "DROP {kind} {relation} CASCADE",
}
STATEMENTS = {"SELECT": "SELECT FROM {relation} LIMIT 0"} | WRITES | CHANGES
FORBIDDEN_TO_ALL = (
    "CREATE TABLE made (id integer)",
    "CREATE VIEW made AS SELECT 1",
    "CREATE FUNCTION made() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "CREATE SCHEMA made",
    "CREATE EXTENSION hstore",
    "CREATE ROLE made",
    "DROP SCHEMA public CASCADE",
    "SELECT rolpassword FROM pg_authid",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "SET ROLE postgres",
)

# A statement that the server refuses for what it is, before it asks who runs it, does no harm either.
REFUSED = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.WrongObjectTypeError,
    asyncpg.ObjectNotInPrerequisiteStateError,
)


@dataclass(frozen=True)
class Relation:
    """A table, view or sequence, and one of its columns."""

    name: str
    kind: str
    column: str

    @property
    def owner(self) -> str | None:
        """The role of the service whose relation it is; None for what is no service's."""
        return next((role for role, prefix in OWN_PREFIX.items() if self.name.startswith(prefix)), None)


@pytest.fixture
async def admin(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.admin_url)
    try:
        yield connection
    finally:
        await connection.close()


async def relations(admin: asyncpg.Connection) -> list[Relation]:
    rows = await admin.fetch(
        """
        SELECT relname, CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind,
               (SELECT quote_ident(attname) FROM pg_attribute
                WHERE attrelid = pg_class.oid AND attnum > 0 AND attidentity = '' AND attgenerated = ''
                ORDER BY pg_column_is_updatable(pg_class.oid, attnum, false) DESC, attnum DESC LIMIT 1) AS column
        FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S')
        ORDER BY relname
        """
    )
    return [Relation(row["relname"], row["kind"], row["column"]) for row in rows]


async def permitted(connection: asyncpg.Connection, statement: str) -> bool:
    """Whether the server would do it. It is undone at once; failing for another reason than rights counts as done."""
    try:
        await connection.execute(f"BEGIN; {statement}; ROLLBACK")
    except asyncpg.PostgresError as error:
        await connection.execute("ROLLBACK")
        return not isinstance(error, REFUSED)
    return True


def url_of(database: Database, role: str) -> str:
    return {
        "cauce_files": database.files_url,
        "cauce_embeddings": database.embeddings_url,
        "cauce_search": database.search_url,
    }[role]


async def rights(database: Database, admin: asyncpg.Connection) -> dict[str, set[tuple[str, str]]]:
    """Every (verb, relation) that each role may do, found by trying."""
    found: dict[str, set[tuple[str, str]]] = {}
    for role in OWN_PREFIX:
        connection = await asyncpg.connect(url_of(database, role))
        found[role] = {
            (verb, relation.name)
            for relation in await relations(admin)
            for verb, statement in STATEMENTS.items()
            if await permitted(
                connection,
                statement.format(relation=relation.name, kind=relation.kind, column=relation.column),
            )
        }
        found[role] |= {(each, "") for each in FORBIDDEN_TO_ALL if await permitted(connection, each)}
        await connection.close()
    return found


async def excesses(granted: Mapping[str, set[tuple[str, str]]], admin: asyncpg.Connection) -> list[str]:
    """What a role may do and must not."""
    writable = {(relation.owner, relation.name) for relation in await relations(admin) if relation.kind == "TABLE"}
    readable = {(relation.owner, relation.name) for relation in await relations(admin)}
    readable |= {(role, name) for role, names in PUBLISHED.items() for name in names}
    return sorted(
        f"{role} may {verb} {name}".strip()
        for role, done in granted.items()
        for verb, name in done
        if not (verb == "SELECT" and (role, name) in readable) and not (verb in WRITES and (role, name) in writable)
    )


async def test_each_service_may_do_what_it_must_and_no_more(database: Database, admin: asyncpg.Connection) -> None:
    granted = await rights(database, admin)

    assert await excesses(granted, admin) == []
    for relation in await relations(admin):
        if relation.kind == "TABLE" and relation.owner is not None:
            assert {(verb, relation.name) for verb in ("SELECT", *WRITES)} <= granted[relation.owner], relation
    for role, names in PUBLISHED.items():
        assert {("SELECT", name) for name in names} <= granted[role]


MISTAKES = {
    "GRANT SELECT ON module_files_file TO cauce_search": "cauce_search may SELECT module_files_file",
    "GRANT SELECT ON module_files_garbage TO cauce_embeddings": "cauce_embeddings may SELECT module_files_garbage",
    "GRANT SELECT ON module_embeddings_file_chunk TO cauce_search": (
        "cauce_search may SELECT module_embeddings_file_chunk"
    ),
    "GRANT DELETE ON module_embeddings_chunk_read TO cauce_search": (
        "cauce_search may DELETE module_embeddings_chunk_read"
    ),
    "GRANT INSERT ON module_embeddings_outbox TO cauce_files": "cauce_files may INSERT module_embeddings_outbox",
    "GRANT UPDATE ON module_files_outbox TO PUBLIC": "cauce_search may UPDATE module_files_outbox",
    "GRANT TRUNCATE ON module_files_garbage TO cauce_files": "cauce_files may TRUNCATE module_files_garbage",
    "ALTER TABLE module_embeddings_space OWNER TO cauce_files": "cauce_files may DROP module_embeddings_space",
    "ALTER VIEW module_embeddings_file_read OWNER TO cauce_files": "cauce_files may ALTER module_embeddings_file_read",
    "GRANT SELECT ON cauce_migration TO cauce_search": "cauce_search may SELECT cauce_migration",
    "GRANT CREATE ON SCHEMA public TO cauce_files": "cauce_files may CREATE TABLE made (id integer)",
    "CREATE TABLE module_novelty_novelty (id bigint); GRANT SELECT ON module_novelty_novelty TO cauce_search": (
        "cauce_search may SELECT module_novelty_novelty"
    ),
}


async def test_each_right_too_many_and_each_too_few_is_seen(database: Database, admin: asyncpg.Connection) -> None:
    for mistake in (*MISTAKES, "REVOKE INSERT ON module_embeddings_file_chunk FROM cauce_embeddings"):
        await admin.execute(mistake)

    granted = await rights(database, admin)

    assert set(MISTAKES.values()) <= set(await excesses(granted, admin))
    assert ("INSERT", "module_embeddings_file_chunk") not in granted["cauce_embeddings"]
