"""The whole system on one machine: database, broker, three services and workers, held together by a supervisor."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from aiokafka.admin import AIOKafkaAdminClient

from contracts.events.topics import ALL_TOPICS
from deploy.embedded.broker import EmbeddedBroker
from deploy.embedded.folder import StackFolder
from deploy.embedded.postgres import DATABASE, EmbeddedPostgres
from deploy.embedded.process import LOOPBACK, Launch, ProcessSpec, port_fault, require_free_port
from deploy.embedded.supervisor import Backoff, Supervisor
from deploy.migrate import migrate_database
from services.chassis.kernel.errors import ConfigurationError, UnavailableError
from services.chassis.messaging.kafka import ensure_topics
from services.chassis.settings import KafkaSettings

TENANT = "default"
WORKER = "worker"
# Loading the models, on a slow machine, while others load theirs.
SERVICE_READY_SECONDS = 240.0
PROBE_SECONDS = 5.0
# Below the range from which systems hand out ports to clients, so that a remembered port stays free.
PORT_BASES = range(20_000, 32_000, 100)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a stack: consecutive, so that one number names them all."""

    base: int

    @property
    def postgres(self) -> int:
        """The database."""
        return self.base

    @property
    def broker(self) -> int:
        """The broker."""
        return self.base + 1

    @property
    def services(self) -> dict[str, int]:
        """The HTTP services, by role."""
        return {"files": self.base + 2, "embeddings": self.base + 3, "search": self.base + 4}

    def worker(self, number: int) -> int:
        """Health and metrics of a worker, counted from 1."""
        return self.base + 4 + number

    @property
    def all(self) -> tuple[int, ...]:
        """Those of every stack, whatever the number of its workers."""
        return (self.postgres, self.broker, *self.services.values())

    @classmethod
    def choose(cls, requested: int | None, remembered: int | None) -> Ports:
        """Those asked for, else those of the last start, else any that are free now."""
        for known in (requested, remembered):
            if known is not None:
                return cls(known)
        for base in random.sample(PORT_BASES, k=len(PORT_BASES)):
            if not any(map(port_fault, cls(base).all)):
                return cls(base)
        raise ConfigurationError("PORT_TAKEN", "no free ports were found", remedy="choose some with --port-base")


@dataclass(frozen=True, slots=True)
class Stack:
    """What runs, and what is said of it. A role ``worker-N`` is announced in the list ``workers``."""

    stages: tuple[tuple[ProcessSpec, ...], ...]
    addresses: Mapping[str, str]

    def announcement(self, pids: Mapping[str, int]) -> dict[str, Any]:
        """The addresses, and the process id of each role."""
        workers = [pid for role, pid in pids.items() if role.startswith(WORKER)]
        processes = {role: pid for role, pid in pids.items() if not role.startswith(WORKER)}
        return {**self.addresses, "processes": {**processes, "workers": workers}}


def cauce_stack(
    folder: StackFolder,
    ports: Ports,
    workers: int,
    environment: Mapping[str, str],
    *,
    kafka_bootstrap: str | None = None,
) -> Stack:
    """The process table of Cauce.

    Args:
        folder: where everything is kept.
        ports: where everything listens, on loopback only.
        workers: how many processes turn files into chunks.
        environment: the caller's; its ``CAUCE_*`` settings hold, save those that say where this stack is.
        kafka_bootstrap: a broker that runs elsewhere, reached as the caller's ``CAUCE_KAFKA_*`` settings say; the
            services make its topics. None: one of the stack's own.
    """
    postgres = EmbeddedPostgres(folder.path / "postgres", ports.postgres)
    broker = EmbeddedBroker(ports.broker)
    urls = {f"{role}_url": f"http://{LOOPBACK}:{port}" for role, port in ports.services.items()}
    kafka = {"CAUCE_KAFKA_BOOTSTRAP": kafka_bootstrap or broker.bootstrap}
    if kafka_bootstrap is None:
        kafka |= {
            "CAUCE_KAFKA_IDEMPOTENT_PRODUCER": "false",
            "CAUCE_KAFKA_SECURITY_PROTOCOL": "PLAINTEXT",
            "CAUCE_KAFKA_REPLICATION_FACTOR": "1",
        }
    settings = {
        "CAUCE_STORAGE_URL": folder.objects.as_uri(),
        "CAUCE_TENANT": TENANT,
        "CAUCE_SCRATCH_TENANTS": "true",
        "CAUCE_OPERATOR_ACCESS": "true",
        **environment,
        **kafka,
        **{f"CAUCE_{role.upper()}_DATABASE_URL": postgres.url_of(DATABASE, f"cauce_{role}") for role in ports.services},
        **{f"CAUCE_{name.upper()}": url for name, url in urls.items()},
        "CAUCE_HOST": LOOPBACK,
    }

    types = environment.get("CAUCE_RESOURCE_TYPES_DIR")

    async def settle_postgres() -> None:
        if applied := await migrate_database(postgres.url, Path(types) if types else None):
            _log.info("the database was migrated: %s steps, the last %s", len(applied), applied[-1])

    async def settle_broker() -> None:
        await make_topics(broker.bootstrap)

    services = [_http_service(role, port, settings) for role, port in ports.services.items()]
    brokers = () if kafka_bootstrap else ((replace(broker.spec, settle=settle_broker, hidden=True),),)
    return Stack(
        stages=(
            (replace(postgres.spec, settle=settle_postgres),),
            *brokers,
            (*services, *(_worker(number, settings, ports.worker(number)) for number in range(1, workers + 1))),
        ),
        addresses={**urls, "database_url": postgres.url, "kafka_bootstrap": kafka["CAUCE_KAFKA_BOOTSTRAP"]},
    )


async def run(
    folder: StackFolder,
    port_base: int,
    stack: Stack,
    *,
    backoff: Backoff = Backoff(),  # noqa: B008 - immutable
    announce: TextIO | None = None,
) -> int:
    """Run the stack until a signal ends it. The caller holds the folder.

    Once all is ready, one line of JSON is written to ``announce`` (standard output), and ``stack.json`` in the folder.

    Returns:
        The exit status: 0 after a good run, 128 and the signal's number when it came before all was ready.

    Raises:
        CauceError: the stack could not be started. Nothing is left running.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Under nohup the hang-up is ignored, and stays so.
        if signum is not signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:
            loop.add_signal_handler(signum, _resolve, stopped, signum)

    def publish() -> None:
        folder.write(port_base, stack.announcement(supervisor.pids))

    supervisor = Supervisor(stack.stages, logs=folder.logs, marks=folder.marks, restarted=publish, backoff=backoff)
    folder.write(port_base, {})
    try:
        if not await _unless(stopped, _start(folder, supervisor)):
            return 128 + stopped.result()
        publish()
        print(json.dumps(stack.announcement(supervisor.pids)), file=announce or sys.stdout, flush=True)
        await stopped
        return 0
    finally:
        _log.info("stopping")
        await supervisor.stop()
        folder.write(port_base, {})
        _log.info("stopped")


async def _start(folder: StackFolder, supervisor: Supervisor) -> None:
    await asyncio.to_thread(folder.stop_leftovers)
    await supervisor.start()


async def _unless(stopped: asyncio.Future[signal.Signals], work: Awaitable[None]) -> bool:
    """Do the work to its end and return True, or give it up and return False when the stop comes first."""
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        task.cancel()
        await asyncio.wait((task,))
        return False
    task.result()
    return True


async def make_topics(bootstrap: str) -> None:
    """Make the topics, all with their stated partitions.

    The embedded broker makes a topic by itself for the first client that asks, and with another number. A broker where
    a client was faster is of no use: it is started again, empty.
    """
    await ensure_topics(
        KafkaSettings(kafka_bootstrap=bootstrap, kafka_security_protocol="PLAINTEXT", kafka_replication_factor=1)
    )
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        described = await admin.describe_topics([topic.name for topic in ALL_TOPICS])
    finally:
        await admin.close()
    found = {topic["topic"]: len(topic["partitions"]) for topic in described}
    if found != {topic.name: topic.partitions for topic in ALL_TOPICS}:
        raise UnavailableError("TOPICS_UNSUITABLE", f"topics have other partitions than they should: {found}")


def _resolve(stopped: asyncio.Future[signal.Signals], signum: signal.Signals) -> None:
    if not stopped.done():
        _log.info("%s received", signum.name)
        stopped.set_result(signum)


def _module(name: str) -> tuple[str, ...]:
    """Run a module of ours; -P, so that a folder of that name where the caller stands is not taken for it."""
    return (sys.executable, "-P", "-m", name)


def _http_service(role: str, port: int, settings: Mapping[str, str]) -> ProcessSpec:
    return _process(role, Launch(_module(f"services.{role}"), {**settings, "CAUCE_PORT": str(port)}), port)


def _worker(number: int, settings: Mapping[str, str], port: int) -> ProcessSpec:
    launch = Launch(_module("services.embeddings.worker"), {**settings, "CAUCE_WORKER_PORT": str(port)})
    return _process(f"{WORKER}-{number}", launch, port)


def _process(role: str, launch: Launch, port: int) -> ProcessSpec:
    def prepare() -> Launch:
        require_free_port(port, role)
        return launch

    return ProcessSpec(role=role, prepare=prepare, ready=_answers_ready(port), ready_seconds=SERVICE_READY_SECONDS)


def _answers_ready(port: int) -> Callable[[int], Awaitable[bool]]:
    async def ready(_pid: int) -> bool:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                reader, writer = await asyncio.open_connection(LOOPBACK, port)
                writer.write(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                status = await reader.readline()
                writer.close()
        except (OSError, TimeoutError):
            return False
        return b" 200 " in status

    return ready
