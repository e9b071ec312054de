"""The whole system as real processes behind links, each restarted as soon as it ends, over servers of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import psutil

from deploy.embedded.postgres import DATABASE, EmbeddedPostgres
from deploy.embedded.process import Launch, tail
from services.chassis.messaging.kafka import ensure_topics
from services.chassis.postgres.migrations import migrate
from services.chassis.settings import KafkaSettings
from tests.faults.links import KafkaLink, PostgresLink
from tests.support.broker import KINDS, BrokerServer, settings_of
from tests.support.gemini_server import API_KEY, GeminiServer
from tests.support.ports import free_port
from tests.support.postgres import temporary_folder

TENANT = "acme"
PATIENCE = 120.0
LEASE_SECONDS = 3.0
SWEEP_SECONDS = 2.0
GRACE_SECONDS = 1.0
A_DAY = 86_400
STORAGE_BYTES = 8 * 2**20
BALLAST = "ballast"
UP = (b"worker_ready", b"Uvicorn running")
ROLES = ("files", "embeddings", "search", "worker-1", "worker-2")
MODULES = {
    "files": ("-m", "services.files"),
    "embeddings": ("-m", "services.embeddings"),
    "search": ("-m", "services.search"),
    "worker-1": ("-m", "services.embeddings.worker"),
    # Its clock is a day ahead, all the time.
    "worker-2": (str(Path(__file__).with_name("wrong_clock.py")), str(A_DAY)),
}


@dataclass
class Member:
    """One process of the fleet, and its own way to the database."""

    role: str
    environment: Mapping[str, str]
    database: PostgresLink
    log: Path
    process: asyncio.subprocess.Process | None = None
    was_up: bool = False
    was_asked_to_stop: bool = False
    breakdowns: list[str] = field(default_factory=list)

    def kill(self) -> None:
        """SIGKILL; it is started again at once."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)

    async def restart(self) -> None:
        """SIGTERM. Returns when the next one is up."""
        before = self.process
        assert before is not None
        self.was_asked_to_stop = True
        before.terminate()

        async def next_is_up() -> bool:
            return self.process is not before and self.was_up

        await eventually(next_is_up)

    def pause(self) -> None:
        """Stop it as it stands, with what it started."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def state(self) -> str:
        """How it is, and what it said last."""
        running = self.process is not None and self.process.returncode is None
        status = psutil.Process(self.process.pid).status() if running else "not there"
        return f"{self.role} is {status}, and said: {tail(self.log)}"

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            os.killpg(self.process.pid, number)

    async def keep(self) -> None:
        """Start it again and again, until cancelled."""
        command = (sys.executable, "-P", *MODULES[self.role])
        arguments = Launch(command, {}).arguments(signal.SIGKILL)
        while True:
            # What it says goes through a pipe: a limit on the size of its files must not be one on its log.
            self.process = await asyncio.create_subprocess_exec(
                *arguments, env=self.environment, stdout=PIPE, stderr=STDOUT, limit=2**22, start_new_session=True
            )
            self.was_up = self.was_asked_to_stop = False
            copying = asyncio.create_task(self._copy_log(self.process))
            try:
                status = await self.process.wait()
                # To give up while it starts is its right: whoever started it starts it again.
                allowed = (0, -signal.SIGTERM) if self.was_asked_to_stop else (-signal.SIGKILL,)
                if self.was_up and status not in allowed:
                    self.breakdowns.append(f"{self.role} ended with status {status}: {tail(self.log)}")
            finally:
                if self.process.returncode is None:
                    os.killpg(self.process.pid, signal.SIGKILL)
                    await self.process.wait()
                copying.cancel()

    async def _copy_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        with self.log.open("ab", buffering=0) as log:
            while said := await process.stdout.readline():
                log.write(said)
                self.was_up |= any(words in said for words in UP)


@dataclass
class Fleet:
    """The running system."""

    members: Mapping[str, Member]
    kafka_link: KafkaLink
    kafka: KafkaSettings
    broker: BrokerServer
    postgres: EmbeddedPostgres
    provider: GeminiServer
    storage: Path
    files: httpx2.AsyncClient
    embeddings: httpx2.AsyncClient
    search: httpx2.AsyncClient
    thread: ThreadPoolExecutor

    async def blocking(self, call: Callable[[], None]) -> None:
        """Make a server's call on the thread that servers live on."""
        await asyncio.get_running_loop().run_in_executor(self.thread, call)

    async def query(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Ask the database as its administrator, past all links."""
        connection = await asyncpg.connect(self.postgres.url)
        try:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *arguments)
            return rows
        finally:
            await connection.close()

    async def broker_comes_back_empty(self) -> None:
        """Start the broker anew. As under the stack's supervisor, nobody meets it before it has its topics."""
        for member in self.members.values():
            member.pause()
        try:
            self.kafka_link.cut()
            await self.blocking(self.broker.start)
            await ensure_topics(self.kafka)
        finally:
            for member in self.members.values():
                member.go_on()

    def fill_storage(self) -> None:
        """Leave no room for another byte: by filling its small file system, else by a limit on the service's files."""
        if os.path.ismount(self.storage):
            with suppress(OSError), (self.storage / BALLAST).open("ab", buffering=0) as ballast:
                while ballast.write(b"\0" * 4096):
                    pass
        else:
            self._limit_files(0)

    def free_storage(self) -> None:
        """Make room again."""
        (self.storage / BALLAST).unlink(missing_ok=True)
        self._limit_files(psutil.RLIM_INFINITY)

    def _limit_files(self, size: int) -> None:
        process = self.members["files"].process
        if process is not None and process.returncode is None:
            _, hard = psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE)
            psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE, (size, hard))

    def breakdowns(self) -> list[str]:
        """Which processes ended though nobody killed them, and what they said last."""
        return [breakdown for member in self.members.values() for breakdown in member.breakdowns]


@asynccontextmanager
async def running_fleet(kind: str, logs: Path) -> AsyncIterator[Fleet]:
    """Everything, ready; nothing of it is left afterwards but what it said, in ``logs``."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        storage = stack.enter_context(_small_storage())
        # Servers end with the thread that started them: one thread, kept to the end.
        thread = stack.enter_context(ThreadPoolExecutor(1))
        run = asyncio.get_running_loop().run_in_executor
        provider = stack.enter_context(GeminiServer())

        kafka_port = free_port()
        kafka_link = KafkaLink(kafka_port)
        await kafka_link.open()
        stack.push_async_callback(kafka_link.close)
        broker = KINDS[kind](folder, kafka_port, kafka_link.port)
        await run(thread, broker.start)
        stack.push_async_callback(run, thread, broker.stop)
        kafka = settings_of(kind, f"127.0.0.1:{kafka_link.port}")
        await ensure_topics(kafka)

        postgres = EmbeddedPostgres(stack.enter_context(temporary_folder()), free_port(), fsync=False)
        await run(thread, postgres.start)
        stack.push_async_callback(run, thread, postgres.stop)
        await migrate(postgres.url)

        ports = {role: free_port() for role in ("files", "embeddings", "search")}
        common = _environment(storage, kafka, provider)
        members = {}
        for role in ROLES:
            link = PostgresLink(postgres.port)
            await link.open()
            stack.push_async_callback(link.close)
            urls = {
                f"CAUCE_{owner.upper()}_DATABASE_URL": (
                    f"postgresql://cauce_{owner}@127.0.0.1:{link.port}/{DATABASE}?sslmode=disable"
                )
                for owner in ports
            }
            environment = common | urls | {"CAUCE_PORT": str(ports.get(role, 0))}
            members[role] = Member(role, environment, link, logs / f"{role}.log")
        stack.push_async_callback(_end, [asyncio.create_task(member.keep()) for member in members.values()])

        clients = {
            role: await stack.enter_async_context(
                httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False, timeout=15)
            )
            for role, port in ports.items()
        }
        for client in clients.values():
            await eventually(partial(_is_ready, client))
        yield Fleet(members, kafka_link, kafka, broker, postgres, provider, storage, **clients, thread=thread)


@contextmanager
def _small_storage() -> Iterator[Path]:
    """A folder on a small file system of its own where we may make one, else a plain one."""
    with temporary_folder() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={STORAGE_BYTES}", "tmpfs", str(folder)]
        may_mount = os.geteuid() == 0 and shutil.which(mount[0]) is not None
        mounted = may_mount and subprocess.run(mount, capture_output=True, check=False).returncode == 0
        try:
            yield folder
        finally:
            if mounted:
                subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _environment(storage: Path, kafka: KafkaSettings, provider: GeminiServer) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "CAUCE_TENANT": TENANT,
        "CAUCE_OPERATOR_ACCESS": "true",
        "CAUCE_STORAGE_URL": storage.as_uri(),
        "CAUCE_KAFKA_BOOTSTRAP": kafka.kafka_bootstrap,
        "CAUCE_KAFKA_IDEMPOTENT_PRODUCER": str(kafka.kafka_idempotent_producer),
        "CAUCE_EMBEDDING_SPACE": "gemini-embedding-001",
        "CAUCE_GEMINI_API_KEY": API_KEY,
        "CAUCE_GEMINI_BASE_URL": provider.url,
        "CAUCE_LEASE_SECONDS": str(LEASE_SECONDS),
        "CAUCE_SWEEP_SECONDS": str(SWEEP_SECONDS),
        "CAUCE_POLL_SECONDS": "0.1",
        "CAUCE_MAX_ATTEMPTS": "50",
        "CAUCE_UPKEEP_SECONDS": "0.5",
        "CAUCE_UPLOAD_IDLE_SECONDS": "5",
        "CAUCE_STORAGE_GRACE_SECONDS": str(GRACE_SECONDS),
    }


async def _is_ready(client: httpx2.AsyncClient) -> bool:
    try:
        return (await client.get("/health/ready")).is_success
    except httpx2.TransportError:
        return False


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def eventually(condition: Callable[[], Any]) -> None:
    """Wait until the condition holds. Patience ends only when something is broken."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.05)
