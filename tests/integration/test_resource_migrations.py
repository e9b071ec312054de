"""From folders to tables: a type that is added, changed or taken away, without another line of code."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import httpx2
import pytest
from structlog.testing import capture_logs

from contracts.events.envelope import Event, read_event
from deploy.migrate import migrate_database
from services.chassis.kernel.errors import ConfigurationError, UnavailableError
from services.chassis.postgres import migrations
from services.chassis.postgres.migrations import migrate
from services.chassis.resource_types import DEFAULT_FOLDER, load_resource_types
from tests.support.files import TENANT, FilesServer, running_files
from tests.support.postgres import Database, temporary_folder
from tests.support.resources import ResourceWorld, resource_world
from tests.support.search import direction, open_index, running_search

DECLARATION = """
description = "A machine that people look after."
reads = ["customer"]
max_characters = 1000
overflow = "refuse"

[fields.maker]
kind = "text"
description = "Who made it."

[fields.owner]
kind = "reference"
to = "customer"
description = "Whose it is."
"""
CONTEXT = """
SELECT machine.id AS entity_id, machine.tenant_id, machine.name, machine.revision, machine.updated_at, machine.maker,
       (SELECT customer.name FROM module_customer_customer AS customer WHERE customer.id = machine.owner) AS owner,
       ARRAY['customer:' || machine.owner] AS reads
FROM module_machine_machine AS machine
"""
TEXT = """# {name}

- Maker: {maker}
- Owner: {owner}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The types of the repository and a ninth."""
    folder = tmp_path / "types"
    shutil.copytree(DEFAULT_FOLDER, folder)
    (folder / "machine").mkdir()
    write(folder, "declaration.toml", DECLARATION)
    write(folder, "context.sql", CONTEXT)
    write(folder, "text.md", TEXT)
    return folder


def write(folder: Path, file: str, text: str) -> None:
    (folder / "machine" / file).write_text(text)


@asynccontextmanager
async def catalogue(database: Database, folder: Path) -> AsyncIterator[FilesServer]:
    with temporary_folder() as storage:
        async with running_files(database, storage, resource_types_dir=folder) as server:
            yield server


async def take_events(world: ResourceWorld) -> list[Event]:
    """The catalogue's events, read as a consumer reads them, and taken out of the outbox."""
    rows = await world.admin.fetch("DELETE FROM module_files_outbox RETURNING position, headers, payload")
    return [
        read_event(
            [(name, text.encode()) for name, text in json.loads(row["headers"]).items()], row["payload"].encode()
        )
        for row in sorted(rows, key=lambda row: row["position"])
    ]


async def unified(world: ResourceWorld) -> list[tuple[str, int, str, str]]:
    rows = await world.admin.fetch(
        "SELECT entity_type, entity_id, tenant_id, embedding_text FROM module_embeddings_unified ORDER BY 1, 2"
    )
    return [tuple(row) for row in rows]


async def found(http: httpx2.AsyncClient, *types: str) -> set[tuple[str, int]]:
    """What a search over these types, or over all, finds."""
    answer = await http.post("/api/web/embeddings/search", json={"query": "Forge press", "entityTypes": list(types)})
    assert answer.status_code == 200, answer.text
    return {(one["entity_type"], one["entity_id"]) for one in answer.json()["results"]}


async def test_a_ninth_type_goes_all_the_way_without_another_line(database: Database, folder: Path) -> None:
    assert await migrate(database.admin_url, folder) == [
        "files/resource_type/machine",
        "embeddings/resource_type/machine",
    ]
    async with (
        catalogue(database, folder) as files,
        resource_world(database, load_resource_types(folder)) as world,
        running_search(database, tenant=TENANT, resource_types_dir=folder) as search,
    ):
        for path, body in (
            ("customer/1", {"name": "Acme"}),
            ("machine/7", {"name": "Press", "maker": "Forge & Co", "owner": 1}),
        ):
            answer = await files.http.put(f"/resources/{path}", json=body)
            assert answer.status_code == 201, answer.text
        events = await take_events(world)
        assert [str(event.type) for event in events] == [
            "cauce.catalog.CustomerChanged.v1",
            "cauce.catalog.MachineChanged.v1",
        ]
        await world.mark_and_drain(*events)
        text = "# Press\n\n- Maker: Forge & Co\n- Owner: Acme"
        assert await world.admin.fetchval("SELECT embedding_text FROM module_embeddings_machine") == text
        assert ("machine", 7, TENANT, text) in await unified(world)
        assert await found(search, "machine") == {("machine", 7)}
        assert await found(search) == {("machine", 7), ("customer", 1)}

        await files.http.put("/resources/customer/1", json={"name": "Acme and Sons"})
        await world.mark_and_drain(*await take_events(world))
        assert await world.text("machine", 7) == "# Press\n\n- Maker: Forge & Co\n- Owner: Acme and Sons"

        assert (await files.http.delete("/resources/machine/7")).status_code == 204
        await world.mark_and_drain(*await take_events(world))
        assert await unified(world) == [("customer", 1, TENANT, "# Acme and Sons")]
        assert await found(search, "machine") == set()
        assert await found(search) == {("customer", 1)}
        assert await world.state("machine", 7) is None
        assert ("MachineEmbedded", 7) in await world.events()
        assert ("MachineEmbeddingRemoved", 7) in await world.events()


async def test_no_type_can_take_a_name_that_is_in_use(database: Database, tmp_path: Path) -> None:
    connection = await asyncpg.connect(database.admin_url)
    rows = await connection.fetch(
        "SELECT substring(relname FROM '^module_embeddings_(.+)$') AS name FROM pg_class WHERE relkind IN ('r', 'v')"
    )
    await connection.close()
    in_use = {row["name"] for row in rows if row["name"]} - set(load_resource_types())
    assert in_use
    for name in in_use:
        (tmp_path / name / name).mkdir(parents=True)
        with pytest.raises(ConfigurationError, match=r"exist already|at most 24"):
            load_resource_types(tmp_path / name)


async def test_a_template_that_cannot_be_read_stops_the_migration(database: Database, folder: Path) -> None:
    write(folder, "text.md", "# {name")
    with pytest.raises(ConfigurationError) as caught:
        await migrate_database(database.admin_url, folder)
    assert (caught.value.code, caught.value.where) == ("RESOURCE_TYPE_INVALID", "machine/text.md")
    connection = await asyncpg.connect(database.admin_url)
    assert await connection.fetchval("SELECT to_regclass('module_machine_machine')") is None
    await connection.close()


async def test_a_second_run_has_nothing_to_do(database: Database) -> None:
    assert await migrate(database.admin_url) == []


async def test_a_field_that_is_declared_later_gets_its_column_and_old_rows_stay(
    database: Database, folder: Path
) -> None:
    await migrate(database.admin_url, folder)
    async with resource_world(database, load_resource_types(folder)) as world:
        await world.mark_and_drain(await world.put("machine", 7, "Press"))
        write(folder, "declaration.toml", DECLARATION + '\n[fields.age]\nkind = "integer"\ndescription = "In years."\n')
        write(folder, "context.sql", CONTEXT.replace("machine.maker,", "machine.age, machine.maker,"))
        write(folder, "text.md", TEXT + "- Age: {age}\n")
        assert await migrate(database.admin_url, folder) == ["files/resource_type/machine"]
    async with resource_world(database, load_resource_types(folder)) as world:
        assert await world.text("machine", 7) == "# Press"
        await world.mark_and_drain(await world.put("machine", 7, "Press", age=12))
        assert await world.text("machine", 7) == "# Press\n\n- Age: 12"


async def test_a_field_that_is_taken_away_leaves_its_column(database: Database, folder: Path) -> None:
    await migrate(database.admin_url, folder)
    write(folder, "declaration.toml", DECLARATION.replace("fields.maker", "fields.manufacturer"))
    await migrate(database.admin_url, folder)
    connection = await asyncpg.connect(database.admin_url)
    assert await connection.fetch("SELECT maker, manufacturer FROM module_machine_machine") == []
    await connection.close()


async def test_a_field_of_another_kind_is_refused(database: Database, folder: Path) -> None:
    await migrate(database.admin_url, folder)
    write(folder, "declaration.toml", DECLARATION.replace('kind = "text"', 'kind = "number"'))
    with pytest.raises(ConfigurationError) as caught:
        await migrate(database.admin_url, folder)
    assert caught.value.code == "RESOURCE_TYPE_CHANGED"
    assert caught.value.where == "machine/declaration.toml: fields.maker.kind"


async def test_a_type_that_is_taken_away_keeps_its_tables_and_is_reported(database: Database, folder: Path) -> None:
    await migrate(database.admin_url, folder)
    async with resource_world(database, load_resource_types(folder)) as world:
        await world.mark_and_drain(await world.put("machine", 7, "Press"))
        with capture_logs() as logs:
            await migrate(database.admin_url, DEFAULT_FOLDER)
        assert [(entry["event"], entry["type"]) for entry in logs if entry["log_level"] == "warning"] == [
            ("resource_type_undeclared", "machine"),
            ("resource_type_undeclared", "machine"),
        ]
        assert await unified(world) == []
        assert await world.admin.fetchval("SELECT count(*) FROM module_embeddings_machine") == 1
    async with resource_world(database) as world:
        # What is of the undeclared type is neither claimed nor swept away.
        await world.admin.execute("UPDATE module_embeddings_resource SET status = 'PENDING'")
        assert await world.drain() == 0
        assert await world.mirror.sweep() == {}
        await migrate(database.admin_url, folder)
        assert [row[:2] for row in await unified(world)] == [("machine", 7)]


async def test_a_context_that_tells_nothing_gives_a_text_of_type_and_id(database: Database, folder: Path) -> None:
    nothing = "NULL::text AS name, machine.revision, machine.updated_at, NULL::text AS maker, NULL::int8 AS owner,"
    write(
        folder,
        "context.sql",
        f"SELECT machine.id AS entity_id, machine.tenant_id, {nothing} NULL::text[] AS reads"
        " FROM module_machine_machine AS machine",
    )
    await migrate(database.admin_url, folder)
    async with resource_world(database, load_resource_types(folder)) as world:
        assert await world.mark_and_drain(await world.put("machine", 7, "Press", owner=1)) == 1
        assert await world.text("machine", 7) == "machine 7"


async def test_a_context_without_a_revision_fails_alone_and_at_once(database: Database, folder: Path) -> None:
    revision = "CASE WHEN machine.id <> 7 THEN machine.revision END AS revision, "
    write(folder, "context.sql", CONTEXT.replace("machine.revision, ", revision))
    await migrate(database.admin_url, folder)
    async with resource_world(database, load_resource_types(folder)) as world:
        await world.mark_and_drain(await world.put("machine", 7, "Press"), await world.put("machine", 8, "Lathe"))
        state = await world.state("machine", 7)
        assert (state["status"], state["error_code"]) == ("FAILED", "CONTEXT_INVALID")
        assert state["error_message"] == "the context's revision is NULL"
        assert (await world.state("machine", 8))["status"] == "COMPLETED"
        assert len(world.embedder.calls) == 1
        await world.admin.execute("UPDATE module_machine_machine SET updated_at = now() - interval '1 day'")
        assert await world.mirror.sweep() == {}


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ("SELECT nothing FROM nowhere", "it makes no view"),
        ("SELECT 1 AS a; DROP TABLE module_machine_machine", "it makes no view"),
        ("DELETE FROM module_machine_machine", "it makes no view"),
        (CONTEXT.replace("machine.revision, ", ""), "it must give a column revision of type bigint"),
        (CONTEXT.replace("machine.tenant_id", "1 AS tenant_id"), "it must give a column tenant_id of type text"),
    ],
)
async def test_a_context_that_serves_no_purpose_is_refused_and_nothing_is_changed(
    database: Database, folder: Path, context: str, said: str
) -> None:
    write(folder, "context.sql", context)
    with pytest.raises(ConfigurationError) as caught:
        await migrate(database.admin_url, folder)
    assert (caught.value.code, caught.value.where) == ("RESOURCE_TYPE_INVALID", "machine/context.sql")
    assert said in caught.value.message
    connection = await asyncpg.connect(database.admin_url)
    assert await connection.fetchval("SELECT to_regclass('module_machine_machine')") is None
    await connection.close()


async def test_every_services_role_may_do_its_part_and_no_more(database: Database) -> None:
    for url, allowed, refused in (
        (database.files_url, "module_variable_variable", "module_embeddings_variable"),
        (database.embeddings_url, "module_embeddings_variable", "module_variable_variable"),
        (database.search_url, "module_embeddings_unified", "module_embeddings_variable_context"),
    ):
        connection = await asyncpg.connect(url)
        assert await connection.fetch(f"SELECT * FROM {allowed}") == []
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch(f"SELECT * FROM {refused}")
        await connection.close()


async def test_the_unified_view_uses_each_arms_index_and_prunes_by_type(database: Database) -> None:
    connection = await asyncpg.connect(database.admin_url)
    space_id = await connection.fetchval(
        "INSERT INTO module_embeddings_space (name, provider, model, native_dimensions, convention, state)"
        " VALUES ('x', 'x', 'x', 768, 'x', 'ACTIVE') RETURNING id"
    )
    # On empty tables a sequential scan is as cheap as an index, and a sort costs nothing.
    await connection.execute("SET enable_seqscan = off; SET enable_sort = off; SET plan_cache_mode = force_custom_plan")
    query = (
        "EXPLAIN (COSTS OFF) SELECT entity_type, entity_id, embedding <=> $1::text::vector AS distance"
        " FROM module_embeddings_unified WHERE space_id = $3 {where} ORDER BY embedding <=> $1::text::vector LIMIT $2"
    )
    vector = str([1.0] + [0.0] * 767)
    plan = "\n".join(row[0] for row in await connection.fetch(query.format(where=""), vector, 10, space_id))
    names = load_resource_types()
    assert "Merge Append" in plan
    assert "Sort" not in plan.replace("Sort Key", "")
    for name in names:
        assert f"Index Scan using module_embeddings_{name}_embedding_{space_id}" in plan
    where = "AND entity_type = ANY ('{variable,rule}')"
    pruned = await connection.fetch(query.format(where=where), vector, 10, space_id)
    assert sum("Index Scan using" in row[0] for row in pruned) == 2
    await connection.close()


async def test_a_table_of_before_there_were_two_spaces_gets_room_for_a_second_vector(database: Database) -> None:
    connection = await asyncpg.connect(database.admin_url)
    await connection.execute(
        """DROP INDEX module_embeddings_variable_entity;
           ALTER TABLE module_embeddings_variable ADD UNIQUE (entity_id);
           CREATE INDEX module_embeddings_variable_embedding ON module_embeddings_variable
               USING hnsw (embedding vector_cosine_ops);
           UPDATE cauce_migration SET checksum = 'former'
           WHERE (service, name) = ('embeddings', 'resource_type/variable');"""
    )

    assert await migrate(database.admin_url) == ["embeddings/resource_type/variable"]

    indexes = "SELECT indexname FROM pg_indexes WHERE tablename = 'module_embeddings_variable' ORDER BY indexname"
    names = [row["indexname"].removeprefix("module_embeddings_variable") for row in await connection.fetch(indexes)]
    assert names == ["_entity", "_pkey", "_tenant"]
    await connection.close()


async def test_a_text_that_has_lost_its_hash_is_left_to_the_sweep(database: Database) -> None:
    async with open_index(database) as index:
        await index.add_resources(await index.add_space(), "variable", [direction(1), direction(1)])
        await index.connection.execute(
            """ALTER TABLE module_embeddings_variable DROP CONSTRAINT hash_is_of_the_text;
               UPDATE module_embeddings_variable SET embedding_text = 'x' WHERE entity_id = 1;
               UPDATE cauce_migration SET checksum = 'former'
               WHERE (service, name) = ('embeddings', 'resource_type/variable');"""
        )

        assert await migrate(database.admin_url) == ["embeddings/resource_type/variable"]

        left = await index.connection.fetch("SELECT entity_id FROM module_embeddings_variable")
        assert [row["entity_id"] for row in left] == [2]
        with pytest.raises(asyncpg.CheckViolationError, match="hash_is_of_the_text"):
            await index.connection.execute("UPDATE module_embeddings_variable SET embedding_text = 'x'")


async def test_a_migration_that_has_to_wait_for_a_table_holds_up_nobody_else(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_SECONDS", 0.2)
    long_reader, others, admin = [await asyncpg.connect(database.admin_url) for _ in range(3)]
    await admin.execute(
        """ALTER TABLE module_embeddings_variable DROP CONSTRAINT hash_is_of_the_text;
           UPDATE cauce_migration SET checksum = 'former'
           WHERE (service, name) = ('embeddings', 'resource_type/variable');"""
    )
    await long_reader.execute("BEGIN; SELECT FROM module_embeddings_variable")

    migrating = asyncio.create_task(migrate(database.admin_url))
    while not await admin.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"):
        await asyncio.sleep(0.01)
    assert await others.fetch("SELECT FROM module_embeddings_variable", timeout=10) == []
    assert not migrating.done()
    await long_reader.execute("COMMIT")

    assert await migrating == ["embeddings/resource_type/variable"]
    for connection in (long_reader, others, admin):
        await connection.close()


async def test_a_table_that_is_never_free_ends_a_migration_with_what_to_do(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LOCK_SECONDS", 0.1), ("LOCK_TRIES", 2), ("_REST_SECONDS", 0.01)):
        monkeypatch.setattr(migrations, name, value)
    reader = await asyncpg.connect(database.admin_url)
    await reader.execute("BEGIN; LOCK TABLE cauce_migration IN ACCESS EXCLUSIVE MODE")
    with pytest.raises(UnavailableError) as caught:
        await migrate(database.admin_url)
    assert caught.value.code == "SCHEMA_IN_USE"
    await reader.close()
