"""Real brokers. ``CAUCE_TEST_BROKER`` chooses: ``embedded``, ``apache`` (from its jars), ``container`` (in Docker)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deploy.embedded.broker import EmbeddedBroker
from services.chassis.settings import KafkaSettings
from tests.support.apache_kafka.server import ApacheKafka
from tests.support.ports import free_port
from tests.support.postgres import temporary_folder

EMBEDDED = "embedded"
APACHE = "apache"
CONTAINER = "container"


class BrokerServer(Protocol):
    """A broker on one port, which it keeps. It starts empty, however it ended."""

    @property
    def bootstrap(self) -> str:
        """The address that Kafka clients start from."""

    def start(self) -> None:
        """Return when it can be used."""

    def stop(self) -> None:
        """Stop it in good order."""

    def kill(self) -> None:
        """End it without warning."""


@dataclass(frozen=True)
class Kafka:
    """A running broker: its server, and the settings that suit it."""

    server: BrokerServer
    settings: KafkaSettings

    @property
    def bootstrap(self) -> str:
        """The address that Kafka clients start from."""
        return self.server.bootstrap

    @property
    def options(self) -> dict[str, Any]:
        """The settings that a service's own take over."""
        return self.settings.model_dump(include={"kafka_bootstrap", "kafka_idempotent_producer"})

    @property
    def environment(self) -> dict[str, str]:
        """The same as a process takes them."""
        return {f"CAUCE_{name.upper()}": str(value) for name, value in self.options.items()}


def _embedded(folder: Path, port: int, advertised_port: int | None) -> BrokerServer:
    return EmbeddedBroker(port, advertised_port=advertised_port, log=folder / "broker.log")


def _apache(folder: Path, port: int, advertised_port: int | None) -> BrokerServer:
    return ApacheKafka(folder, port, advertised_port)


def _container(_: Path, port: int, advertised_port: int | None) -> BrokerServer:
    # Here, because it is of no use without Docker.
    from tests.support.kafka_container import KafkaInContainer

    return KafkaInContainer(port, advertised_port)


KINDS: Mapping[str, Callable[[Path, int, int | None], BrokerServer]] = {
    EMBEDDED: _embedded,
    APACHE: _apache,
    CONTAINER: _container,
}


@contextmanager
def running_broker(kind: str) -> Iterator[Kafka]:
    """A broker of its own, stopped afterwards."""
    with temporary_folder() as folder:
        server = KINDS[kind](folder, free_port(), None)
        server.start()
        try:
            yield Kafka(server, settings_of(kind, server.bootstrap))
        finally:
            server.stop()


def settings_of(kind: str, bootstrap: str) -> KafkaSettings:
    """The settings that suit a broker of that kind: all but the embedded one have the idempotent producer."""
    return KafkaSettings(kafka_bootstrap=bootstrap, kafka_idempotent_producer=kind != EMBEDDED)
