"""Kafka in a Docker container, on a fixed port of this machine."""

from __future__ import annotations

from testcontainers.community.kafka import KafkaContainer

PORT_INSIDE = 9093


class _Advertised(KafkaContainer):
    """Its start script advertises what this says."""

    advertised_port: int

    def get_exposed_port(self, port: int) -> int:
        """Where clients are told to connect."""
        return self.advertised_port


class KafkaInContainer:
    """Implements BrokerServer. Each start is a new container."""

    def __init__(self, port: int, advertised_port: int | None = None) -> None:
        self._port = port
        self._advertised_port = advertised_port or port
        self._container: KafkaContainer | None = None

    @property
    def bootstrap(self) -> str:
        """The address that Kafka clients start from."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Return when it can be used."""
        container = _Advertised(port=PORT_INSIDE).with_kraft().with_bind_ports(PORT_INSIDE, self._port)
        container.advertised_port = self._advertised_port
        self._container = container.start()

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
