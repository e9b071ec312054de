"""One real server for the whole run, and a fresh clone of a migrated database for each test that asks."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import asyncpg
import psutil

from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.server import run_blocking
from services.chassis.postgres.migrations import migrate
from tests.support.ports import free_port

TEMPLATE = "cauce_template"
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 8 << 30
"""What must be free there: containers often have 64 MB of it."""


@dataclass(frozen=True)
class Database:
    """A database of one test. ``admin_url`` is the superuser's; the others are each service's role."""

    name: str
    admin_url: str
    files_url: str
    embeddings_url: str
    search_url: str


class PostgresServer:
    """The server and its template database."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server

    @property
    def admin_url(self) -> str:
        """The superuser's address of a database that no test uses."""
        return self._server.url

    async def make_template(self) -> None:
        """Migrate a database once, for every test to clone."""
        await self._execute(f"CREATE DATABASE {TEMPLATE}")
        await migrate(self._server.url_of(TEMPLATE))
        await self._execute(f"ALTER DATABASE {TEMPLATE} IS_TEMPLATE true ALLOW_CONNECTIONS false")

    async def clone(self, template: str = TEMPLATE) -> Database:
        """A database of its own, as just migrated unless it is another template's."""
        name = f"test_{uuid4().hex}"
        # Copying files takes a quarter of the time that writing every page to the log does.
        await self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return Database(
            name=name,
            admin_url=self._server.url_of(name),
            files_url=self._server.url_of(name, "cauce_files"),
            embeddings_url=self._server.url_of(name, "cauce_embeddings"),
            search_url=self._server.url_of(name, "cauce_search"),
        )

    async def drop(self, database: Database) -> None:
        """Drop it, whoever is still connected."""
        await self._execute(f"DROP DATABASE {database.name} WITH (FORCE)")

    @contextmanager
    def hung(self) -> Iterator[None]:
        """The server takes connections and answers nobody."""
        postmaster = psutil.Process(self._server.pid)
        processes = [postmaster, *postmaster.children()]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.admin_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@asynccontextmanager
async def read_only(database: Database, *roles: str) -> AsyncIterator[None]:
    """These roles, ``cauce_files`` and the like, find the database as a demoted primary is, in new sessions."""
    admin = await asyncpg.connect(database.admin_url)

    async def change(setting: str) -> None:
        for role in roles:
            await admin.execute(f"ALTER ROLE {role} IN DATABASE {database.name} {setting}")
            query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND usename = $2"
            await admin.execute(query, database.name, role)

    try:
        await change("SET default_transaction_read_only = on")
        yield
        await change("RESET default_transaction_read_only")
    finally:
        await admin.close()


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder that a database server may use. Pytest's own is closed to the account that it runs as under root."""
    folder = Path(tempfile.mkdtemp(prefix="cauce-test-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server with its template, stopped and removed afterwards.

    In memory where there is room: a clone is hundreds of small files, which a disk's file system makes in seven times
    the time.
    """
    in_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES
    with temporary_folder(MEMORY if in_memory else None) as folder:
        server = EmbeddedPostgres(folder, free_port(), fsync=False)
        server.start()
        try:
            postgres = PostgresServer(server)
            run_blocking(postgres.make_template())
            yield postgres
        finally:
            server.stop()
