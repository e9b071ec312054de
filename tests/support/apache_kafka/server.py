"""One node of Apache Kafka in KRaft mode on 127.0.0.1, from the jars that Maven brings. Every start is empty."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4
from xml.etree import ElementTree

from deploy.embedded.broker import answers
from deploy.embedded.process import LOOPBACK, Launch, ProcessSpec, require_free_port
from deploy.embedded.server import EmbeddedServer
from services.chassis.kernel.errors import ConfigurationError, UnavailableError
from tests.support.ports import free_port

POM = Path(__file__).with_name("pom.xml")
PREPARE_SECONDS = 300.0
# A small heap and the quick compiler: it lives for one run of the tests.
JVM = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
ONE_NODE: Mapping[str, object] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 4,
}
"""What a node that is alone is told, wherever it listens."""
USER, PASSWORD = "cauce", "a password"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class ApacheKafka(EmbeddedServer):
    """A broker and controller in one process. Clients are told to connect to ``advertised_port``.

    Besides, it listens at ``secured`` for clients with TLS and a password, by a certificate of its own in ``cafile``.
    """

    def __init__(self, folder: Path, port: int, advertised_port: int | None = None) -> None:
        self.port = port
        self.secured = f"{LOOPBACK}:{free_port()}"
        self.cafile = folder / "broker.pem"
        self._advertised_port = advertised_port or port
        self.log = folder / "kafka.log"
        self._folder = folder
        self.spec = ProcessSpec(
            role="kafka",
            prepare=self._prepare,
            ready=lambda _pid: answers(self.port),
            ready_seconds=120.0,
            stop=((signal.SIGTERM, 15.0),),
        )

    @property
    def bootstrap(self) -> str:
        """The address that Kafka clients start from."""
        return f"{LOOPBACK}:{self.port}"

    def _prepare(self) -> Launch:
        java = require_command("java")
        classpath = f"{jars()}/*"
        require_free_port(self.port, "kafka")
        if not self.cafile.exists():
            self._make_certificate()
        data = self._folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        properties = self._folder / "server.properties"
        lines = (f"{name}={value}\n" for name, value in self._settings(data, free_port()).items())
        properties.write_text("".join(lines))
        cluster = "c" + urlsafe_b64encode(uuid4().bytes).decode()[1:22]
        command = (java, *JVM, "-cp", classpath)
        run(
            (
                *(*command, "kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", str(properties)),
                *(part for kind in SCRAM for part in ("--add-scram", f"{kind}=[name={USER},password={PASSWORD}]")),
            ),
            what="the broker's folder could not be made",
        )
        return Launch((*command, "kafka.Kafka", str(properties)), {"PATH": os.defpath})

    def _make_certificate(self) -> None:
        keys = ("-keystore", str(self._folder / "broker.p12"), "-storepass", PASSWORD, "-alias", "broker")
        names = ("-dname", f"CN={LOOPBACK}", "-ext", f"SAN=IP:{LOOPBACK}")
        authority = ("-ext", "BC:critical=ca:true", "-ext", "KU:critical=digitalSignature,keyCertSign")
        what = "the broker's certificate could not be made"
        keytool = require_command("keytool")
        run((keytool, "-genkeypair", *keys, "-storetype", "PKCS12", "-keyalg", "EC", *names, *authority), what=what)
        run((keytool, "-exportcert", *keys, "-rfc", "-file", str(self.cafile)), what=what)

    def _settings(self, data: Path, controller_port: int) -> Mapping[str, object]:
        return {
            "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller_port}",
            "listeners": (
                f"PLAINTEXT://{self.bootstrap},SECURED://{self.secured},CONTROLLER://{LOOPBACK}:{controller_port}"
            ),
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self._advertised_port},SECURED://{self.secured}",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL,CONTROLLER:PLAINTEXT",
            "listener.name.secured.ssl.keystore.type": "PKCS12",
            "listener.name.secured.ssl.keystore.location": self._folder / "broker.p12",
            "listener.name.secured.ssl.keystore.password": PASSWORD,
            "listener.name.secured.sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM)),
            "listener.name.secured.plain.sasl.jaas.config": (
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            ),
            **{
                f"listener.name.secured.{kind.lower()}.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                )
                for kind in SCRAM
            },
            "log.dirs": data,
            **ONE_NODE,
        }


def version() -> str:
    """The release of Apache Kafka that the ``pom.xml`` names."""
    return ElementTree.parse(POM).findtext("version", "")


def jars() -> Path:
    """The folder of jars, filled once for each version of the ``pom.xml``.

    Raises:
        ConfigurationError: ``COMMAND_MISSING``: Maven is not installed.
        UnavailableError: Maven could not bring them.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cauce"
    folder = cache / f"apache-kafka-{version()}"
    if folder.is_dir():
        return folder
    maven = require_command("mvn")
    cache.mkdir(parents=True, exist_ok=True)
    # Filled beside its place and moved there whole, so that half of it is never taken for all; by one of us at a time.
    with (cache / "apache-kafka.lock").open("w") as turn, tempfile.TemporaryDirectory(dir=cache) as unfinished:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not folder.is_dir():
            libraries = Path(unfinished) / "libraries"
            run(
                (maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"),
                what="Maven could not bring Apache Kafka",
            )
            libraries.rename(folder)
    return folder


def require_command(name: str) -> str:
    """Where the command is. Raises ConfigurationError ``COMMAND_MISSING``."""
    path = shutil.which(name)
    if path is None:
        raise ConfigurationError(
            "COMMAND_MISSING",
            f"Apache Kafka needs {name}, which is not installed",
            where=name,
            remedy="install a Java runtime (17 or newer) and Maven, or leave CAUCE_TEST_BROKER out",
        )
    return path


def run(command: tuple[str, ...], *, what: str) -> None:
    """Run a command to its end. Raises UnavailableError with what it said."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PREPARE_SECONDS, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        raise UnavailableError("SERVER_FAILED", f"{what}: {said}", where=command[0])
