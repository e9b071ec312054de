"""Apache Kafka in a Docker container, on a fixed port of this machine, in the release that the jars are of."""

from __future__ import annotations

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from tests.support.apache_kafka.server import ONE_NODE, version

PORT_INSIDE = 9092
START_SECONDS = 120


class KafkaInContainer:
    """Implements BrokerServer. Each start is a new container."""

    def __init__(self, port: int, advertised_port: int | None = None) -> None:
        self._port = port
        self._advertised_port = advertised_port or port
        self._container: DockerContainer | None = None

    @property
    def bootstrap(self) -> str:
        """The address that Kafka clients start from."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Return when it can be used."""
        # Not testcontainers' KafkaContainer: that one starts images of Confluent alone.
        container = DockerContainer(f"apache/kafka:{version()}").with_bind_ports(PORT_INSIDE, self._port)
        self._container = container.with_envs(**environment(self._advertised_port)).waiting_for(
            LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(START_SECONDS)
        )
        self._container.start()

    def stop(self) -> None:
        """Stop and remove it."""
        container, self._container = self._container, None
        if container is not None:
            container.stop()

    def kill(self) -> None:
        """End it without warning."""
        if self._container is not None:
            self._container.get_wrapped_container().kill()
        self.stop()


def environment(advertised_port: int) -> dict[str, str]:
    """The node's settings as the image takes them. The node finds itself inside, clients find it outside."""
    settings = ONE_NODE | {
        "controller.quorum.voters": "1@localhost:9094",
        "listeners": f"PLAINTEXT://:{PORT_INSIDE},INSIDE://localhost:9093,CONTROLLER://localhost:9094",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{advertised_port},INSIDE://localhost:9093",
        "inter.broker.listener.name": "INSIDE",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": "/tmp/kraft-combined-logs",
    }
    return {f"KAFKA_{name.upper().replace('.', '_')}": str(value) for name, value in settings.items()}
