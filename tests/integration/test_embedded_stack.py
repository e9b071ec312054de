"""The embedded stack: its servers, and the supervisor that keeps them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from contracts.events.topics import Topic
from deploy.embedded import postgres
from deploy.embedded.accounts import can_reach
from deploy.embedded.broker import EmbeddedBroker
from deploy.embedded.folder import StackFolder
from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.process import Account, Launch, ProcessSpec
from deploy.embedded.server import EmbeddedServer, run_blocking
from deploy.embedded.stack import Ports, Stack, cauce_stack, make_topics, run
from deploy.embedded.supervisor import LOG_BYTES, Backoff, Supervisor, bound_log
from services.chassis.kernel.errors import CauceError
from services.chassis.messaging.kafka import client_options, ensure_topics
from tests.support.broker import Kafka
from tests.support.files import PATIENCE
from tests.support.ports import free_port
from tests.support.postgres import Database, temporary_folder

QUICK = Backoff(first=0.01, most=0.05, reset_after=60.0)
SLEEPS = "import time; time.sleep(600)"
IGNORES_SIGTERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(600)"


def program(code: str, **environment: str) -> Launch:
    return Launch((sys.executable, "-u", "-c", code), {"PATH": os.defpath, **environment})


async def always_ready(pid: int) -> bool:
    return True


def stand_in(
    role: str,
    code: str = SLEEPS,
    *,
    ready: Callable[[int], Awaitable[bool]] = always_ready,
    ready_seconds: float = 30.0,
    stop_seconds: float = 10.0,
    hidden: bool = False,
) -> ProcessSpec:
    return ProcessSpec(
        role=role,
        prepare=lambda: program(code),
        ready=ready,
        ready_seconds=ready_seconds,
        stop=((signal.SIGTERM, stop_seconds),),
        hidden=hidden,
    )


async def never_ready(pid: int) -> bool:
    return False


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the test's own limit is generous, and only reached by a fault."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[StackFolder]:
    folder = StackFolder(tmp_path / "data")
    with folder.held():
        yield folder


@contextlib.asynccontextmanager
async def supervised(folder: StackFolder, *stages: tuple[ProcessSpec, ...]) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(stages, logs=folder.logs, marks=folder.marks, restarted=lambda: None, backoff=QUICK)
    try:
        yield supervisor
    finally:
        await supervisor.stop()


# The servers.


async def test_clone_is_migrated_and_serves_each_role(database: Database) -> None:
    for url, role in [
        (database.files_url, "cauce_files"),
        (database.embeddings_url, "cauce_embeddings"),
        (database.search_url, "cauce_search"),
    ]:
        connection = await asyncpg.connect(url)
        assert await connection.fetchval("SELECT current_user") == role
        assert await connection.fetchval("SELECT to_regclass('module_files_file')") is not None
        await connection.close()


async def test_server_has_vectors_bm25_and_letters_beyond_ascii(database: Database) -> None:
    connection = await asyncpg.connect(database.admin_url)
    await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_textsearch; CREATE EXTENSION IF NOT EXISTS unaccent")
    assert await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'") == "0.8.6"
    lexemes = await connection.fetchval("SELECT to_tsvector('spanish', '¿Cuál «presión» “máxima”…')::text")
    await connection.close()
    assert lexemes == "'cual':1 'maxim':3 'presion':2"


async def test_broker_keeps_and_hands_out_records(kafka: Kafka) -> None:
    topic = Topic("embedded-stack", partitions=1)
    await ensure_topics(kafka.settings, [topic])
    async with AIOKafkaProducer(**client_options(kafka.settings)) as producer:
        await producer.send_and_wait(topic.name, b"value", key=b"key")
    options = client_options(kafka.settings)
    async with AIOKafkaConsumer(topic.name, auto_offset_reset="earliest", **options) as consumer:
        record = await consumer.getone()
    assert (record.key, record.value) == (b"key", b"value")


def execute(server: EmbeddedPostgres, statement: str) -> None:
    async def go() -> None:
        connection = await asyncpg.connect(server.url)
        await connection.execute(statement)
        await connection.close()

    run_blocking(go())


def rows_kept(server: EmbeddedPostgres) -> list[int]:
    async def fetch() -> list[int]:
        connection = await asyncpg.connect(server.url)
        rows = await connection.fetch("SELECT a FROM kept ORDER BY a")
        await connection.close()
        return [row["a"] for row in rows]

    return run_blocking(fetch())


@contextlib.contextmanager
def stopping(*servers: EmbeddedServer) -> Iterator[None]:
    try:
        yield
    finally:
        for server in servers:
            server.stop()


def test_database_keeps_its_data_over_a_stop_a_crash_and_a_server_left_running() -> None:
    with temporary_folder() as data:
        (data / "cluster.new").mkdir()  # an initialisation that was interrupted
        server = EmbeddedPostgres(data, free_port(), fsync=False)
        successor = EmbeddedPostgres(data, server.port, fsync=False)
        with stopping(server, successor):
            server.start()
            execute(server, "CREATE TABLE kept (a int); INSERT INTO kept VALUES (1)")
            server.stop()

            server.start()
            execute(server, "INSERT INTO kept VALUES (2)")
            orphan = server.pid
            successor.start()
            assert is_gone(orphan)
            server.stop()
            execute(successor, "INSERT INTO kept VALUES (3)")

            pid_file = data / "cluster" / "postmaster.pid"
            left_by_the_crash = pid_file.read_text().replace(str(successor.pid), str(os.getpid()))
            successor.kill()
            # As if the system had given the crashed server's process id to another program.
            pid_file.write_text(left_by_the_crash)
            server.start()
            assert rows_kept(server) == [1, 2, 3]


def test_database_says_that_its_port_is_taken(kafka: Kafka) -> None:
    with temporary_folder() as data:
        server = EmbeddedPostgres(data, int(kafka.bootstrap.split(":")[1]))
        with pytest.raises(CauceError, match="cannot listen") as caught:
            server.start()
        assert caught.value.code == "PORT_TAKEN"


def test_database_that_cannot_start_shows_its_log() -> None:
    with temporary_folder() as data:
        (data / "cluster").mkdir(mode=0o700)
        (data / "cluster" / "PG_VERSION").write_text("9\n")
        server = EmbeddedPostgres(data, free_port(), fsync=False)
        with pytest.raises(CauceError, match="ended with status") as caught:
            server.start()
        assert caught.value.code == "SERVER_FAILED"
        assert "cluster" in caught.value.message


def test_account_is_known_not_to_reach_what_is_closed_to_it(tmp_path: Path) -> None:
    stranger = Account(uid=60_123, gid=60_123)
    with temporary_folder() as closed:
        closed.chmod(0o700)
        assert not can_reach(closed / "inside", stranger)
        closed.chmod(0o711)
        assert can_reach(closed / "inside", stranger)


def test_data_moves_to_where_the_account_can_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = Account(uid=60_123, gid=60_123)
    monkeypatch.setattr(postgres, "SHARED_STATE", tmp_path / "shared")
    with temporary_folder() as closed:
        closed.chmod(0o700)
        data = closed / "postgres"
        data.mkdir()
        home = postgres.reachable_home(data, stranger)
        assert home.parent == tmp_path / "shared"
        assert postgres.reachable_home(data, stranger) == home

        (data / "cluster").mkdir()
        with pytest.raises(CauceError) as caught:
            postgres.reachable_home(data, stranger)
        assert caught.value.code == "DATA_DIR_UNREACHABLE"

        closed.chmod(0o711)
        assert postgres.reachable_home(data, stranger) == data


def test_server_runs_from_a_copy_of_its_files() -> None:
    with temporary_folder() as folder:
        ours = Account(os.getuid(), os.getgid())
        copy = postgres.Binaries.installed().copied_to(folder / "runtime", ours)
        assert copy.usable_by(ours)
        for binary in (copy.postgres, copy.initdb):
            said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
            assert "(PostgreSQL) 18" in said


async def test_topics_that_a_client_made_too_early_are_not_accepted(tmp_path: Path) -> None:
    broker = EmbeddedBroker(free_port(), log=tmp_path / "broker.log")
    await asyncio.to_thread(broker.start)
    try:
        await make_topics(broker.bootstrap)
        await make_topics(broker.bootstrap)
    finally:
        await asyncio.to_thread(broker.stop)

    await asyncio.to_thread(broker.start)
    try:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            await producer.send_and_wait("files.events", b"early")
        with pytest.raises(CauceError) as caught:
            await make_topics(broker.bootstrap)
        assert caught.value.code == "TOPICS_UNSUITABLE"
    finally:
        await asyncio.to_thread(broker.stop)


# The supervisor.


async def test_stages_start_in_order_and_stop_in_reverse(folder: StackFolder) -> None:
    journal = folder.path / "journal"
    journal.touch()

    def writes(role: str) -> ProcessSpec:
        code = f"""
import signal, time
def write(word): open({str(journal)!r}, "a").write("{role} " + word + "\\n")
def end(*_): write("ends"); raise SystemExit
signal.signal(signal.SIGTERM, end)
write("starts")
time.sleep(600)
"""

        async def has_started(pid: int) -> bool:
            return f"{role} starts" in journal.read_text()

        return stand_in(role, code, ready=has_started)

    async with supervised(folder, (writes("first"),), (writes("second"),)) as supervisor:
        await supervisor.start()
    assert journal.read_text().splitlines() == ["first starts", "second starts", "second ends", "first ends"]


async def test_process_that_dies_is_started_again(folder: StackFolder) -> None:
    async with supervised(folder, (stand_in("one"), stand_in("other"))) as supervisor:
        await supervisor.start()
        before = supervisor.pids
        for _ in range(3):
            died = supervisor.pids["one"]
            os.kill(died, signal.SIGKILL)
            await until(lambda died=died: supervisor.pids["one"] != died)
        assert supervisor.pids["other"] == before["other"]
        alive = supervisor.pids["one"]
        assert not is_gone(alive)
    assert is_gone(alive)
    assert is_gone(before["other"])


async def test_what_a_dead_process_had_started_ends_with_it(folder: StackFolder) -> None:
    code = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]).pid); {SLEEPS}"
    async with supervised(folder, (stand_in("parent", code),)) as supervisor:
        await supervisor.start()
        log = folder.logs / "parent.log"
        await until(lambda: log.read_text().endswith("\n"))
        child = int(log.read_text())
        os.kill(supervisor.pids["parent"], signal.SIGKILL)
        await until(lambda: is_gone(child))


def test_pauses_between_restarts_grow_to_a_limit() -> None:
    backoff = Backoff(first=0.5, most=30.0)
    assert [backoff.seconds(failures) for failures in (1, 2, 3, 6, 7, 8, 1000)] == [0.5, 1, 2, 16, 30, 30, 30]


async def test_start_fails_with_the_log_of_a_process_that_keeps_ending(folder: StackFolder) -> None:
    spec = stand_in("broken", "raise SystemExit('the reason')", ready=never_ready)
    async with supervised(folder, (spec,)) as supervisor:
        with pytest.raises(CauceError, match="the reason") as caught:
            await supervisor.start()
    assert caught.value.code == "SERVER_FAILED"
    assert (folder.logs / "broken.log").read_text().count("the reason") == 3


async def test_start_fails_when_a_process_is_never_ready(folder: StackFolder) -> None:
    async with supervised(folder, (stand_in("slow", ready=never_ready, ready_seconds=0.2),)) as supervisor:
        with pytest.raises(CauceError, match="slow was not ready"):
            await supervisor.start()


async def test_process_deaf_to_the_signal_is_killed(folder: StackFolder) -> None:
    async with supervised(folder, (stand_in("deaf", IGNORES_SIGTERM, stop_seconds=0.1),)) as supervisor:
        await supervisor.start()
        await until(lambda: "deaf" in (folder.logs / "deaf.log").read_text())
        pid = supervisor.pids["deaf"]
    assert is_gone(pid)


async def test_later_stages_are_paused_while_what_they_use_is_made_ready_again(folder: StackFolder) -> None:
    let_ready = asyncio.Event()
    let_ready.set()

    async def ready(pid: int) -> bool:
        return let_ready.is_set()

    hidden = stand_in("hidden", ready=ready, hidden=True)
    async with supervised(folder, (hidden,), (stand_in("client"),)) as supervisor:
        await supervisor.start()
        client = psutil.Process(supervisor.pids["client"])
        let_ready.clear()
        os.kill(supervisor.pids["hidden"], signal.SIGKILL)
        await until(lambda: client.status() == psutil.STATUS_STOPPED)
        let_ready.set()
        await until(lambda: client.status() != psutil.STATUS_STOPPED)


def test_long_log_is_kept_once_and_emptied(tmp_path: Path) -> None:
    log = tmp_path / "role.log"
    log.write_bytes(b"x" * (LOG_BYTES + 1))
    with log.open("ab") as writer:
        bound_log(log)
        writer.write(b"goes on")
    assert log.read_bytes() == b"goes on"
    assert (tmp_path / "role.log.1").stat().st_size == LOG_BYTES + 1


def test_processes_end_with_a_killed_supervisor(folder: StackFolder) -> None:
    code = f"""
import signal, subprocess, sys
from deploy.embedded.process import Launch
launch = Launch((sys.executable, "-c", {SLEEPS!r}), {{}})
child = subprocess.Popen(launch.arguments(signal.SIGTERM), env={folder.marks!r})
print(child.pid, flush=True)
child.wait()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        # Only then has the launcher made its wish known.
        run_blocking(until(lambda: child.cmdline()[-2:] == ["-c", SLEEPS] and len(child.cmdline()) == 3))
        parent.kill()
    if sys.platform != "linux":
        folder.stop_leftovers()  # only Linux tells the child
    psutil.wait_procs([child], timeout=PATIENCE)
    assert is_gone(child.pid)


# The folder.


def test_second_start_on_a_folder_is_refused(folder: StackFolder) -> None:
    with pytest.raises(CauceError, match=f"process {os.getpid()}") as caught, StackFolder(folder.path).held():
        pass
    assert caught.value.code == "STACK_RUNNING"


def test_folder_of_a_killed_stack_can_be_used_again(tmp_path: Path) -> None:
    path = tmp_path / "data"
    code = f"""
from pathlib import Path
from deploy.embedded.folder import StackFolder
with StackFolder(Path({str(path)!r})).held():
    print("held", flush=True)
    {SLEEPS}
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
    with StackFolder(path).held():
        pass


def test_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CauceError) as caught, StackFolder(tmp_path / "file").held():
        pass
    assert caught.value.code == "DATA_DIR_UNUSABLE"


def test_what_a_killed_run_left_is_stopped_and_nothing_else(folder: StackFolder, tmp_path: Path) -> None:
    def start(marks: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", SLEEPS], env=marks)

    with start(folder.marks) as left, start(StackFolder(tmp_path / "other").marks) as other:
        folder.stop_leftovers()
        left_ended, other_ended = is_gone(left.pid), is_gone(other.pid)
        left.kill()
        other.kill()
    assert left_ended
    assert not other_ended


def test_ports_are_those_asked_for_then_those_remembered_then_free_ones(folder: StackFolder) -> None:
    assert folder.remembered_port_base() is None
    folder.write(23_000, {"files_url": "http://..."})
    assert folder.remembered_port_base() == 23_000
    assert Ports.choose(24_000, 23_000).all == (24_000, 24_001, 24_002, 24_003, 24_004)
    assert Ports.choose(None, 23_000).base == 23_000
    assert Ports.choose(None, None).base in range(20_000, 32_000)


# The stack.


def state_of(folder: StackFolder) -> dict[str, object]:
    state: dict[str, object] = json.loads((folder.path / "stack.json").read_text())
    return state


async def test_stack_announces_itself_follows_restarts_and_takes_its_addresses_back(folder: StackFolder) -> None:
    stack = Stack(((stand_in("files"), stand_in("worker-1"), stand_in("worker-2")),), {"files_url": "http://files"})
    said = io.StringIO()
    running = asyncio.create_task(run(folder, 23_000, stack, backoff=QUICK, announce=said))
    await until(lambda: "\n" in said.getvalue())

    announced = json.loads(said.getvalue())
    assert announced["files_url"] == "http://files"
    assert set(announced["processes"]) == {"files", "workers"}
    assert state_of(folder) == {"port_base": 23_000, **announced}

    killed, kept = announced["processes"]["workers"]
    os.kill(killed, signal.SIGKILL)
    await until(lambda: state_of(folder) != {"port_base": 23_000, **announced})
    assert state_of(folder)["processes"]["workers"][1] == kept  # type: ignore[index]
    assert killed not in state_of(folder)["processes"]["workers"]  # type: ignore[index]

    os.kill(os.getpid(), signal.SIGINT)
    assert await running == 0
    assert said.getvalue().count("\n") == 1
    assert state_of(folder) == {"port_base": 23_000}
    assert is_gone(kept)


async def test_signal_during_the_start_stops_what_was_started(folder: StackFolder) -> None:
    children = psutil.Process().children()
    stack = Stack(((stand_in("files", ready=never_ready),),), {})
    said = io.StringIO()
    running = asyncio.create_task(run(folder, 23_000, stack, backoff=QUICK, announce=said))
    log = folder.logs / "files.log"
    await until(log.exists)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 128 + signal.SIGTERM
    assert said.getvalue() == ""
    assert psutil.Process().children() == children


def test_caller_settings_hold_but_addresses_are_the_stack_own(folder: StackFolder) -> None:
    caller = {"CAUCE_EMBEDDING_SPACE": "gemini-embedding-2", "CAUCE_FILES_URL": "http://elsewhere", "OTEL_A": "b"}
    ports = Ports.choose(None, None)
    stack = cauce_stack(folder, ports, 2, caller)
    roles = [[spec.role for spec in stage] for stage in stack.stages]
    assert roles == [["postgres"], ["broker"], ["files", "embeddings", "search", "worker-1", "worker-2"]]
    environment = stack.stages[2][0].prepare().environment
    assert environment["CAUCE_EMBEDDING_SPACE"] == "gemini-embedding-2"
    assert environment["OTEL_A"] == "b"
    assert environment["CAUCE_FILES_URL"] == f"http://127.0.0.1:{ports.base + 2}" == stack.addresses["files_url"]
    assert environment["CAUCE_PORT"] == str(ports.base + 2)
    assert environment["CAUCE_FILES_DATABASE_URL"] == f"postgresql://cauce_files@127.0.0.1:{ports.base}/postgres"
    assert environment["CAUCE_STORAGE_URL"] == folder.objects.as_uri()
    assert environment["CAUCE_TENANT"] == "default"


def test_a_broker_that_runs_already_is_used_as_the_caller_says(folder: StackFolder) -> None:
    caller = {"CAUCE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "CAUCE_KAFKA_BOOTSTRAP": "other:1"}
    stack = cauce_stack(folder, Ports.choose(None, None), 1, caller, kafka_bootstrap="kafka:9092")
    assert [stage[0].role for stage in stack.stages] == ["postgres", "files"]
    environment = stack.stages[1][0].prepare().environment
    assert environment["CAUCE_KAFKA_BOOTSTRAP"] == "kafka:9092" == stack.addresses["kafka_bootstrap"]
    assert environment["CAUCE_KAFKA_SECURITY_PROTOCOL"] == "SASL_SSL"
    assert "CAUCE_KAFKA_IDEMPOTENT_PRODUCER" not in environment
