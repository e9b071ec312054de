"""One real broker for the whole run. ``CAUCE_TEST_BROKER`` chooses which; only the embedded one is known today."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from deploy.embedded.broker import EmbeddedBroker
from deploy.embedded.process import free_port
from services.chassis.settings import KafkaSettings
from tests.support.postgres import temporary_folder

EMBEDDED = "embedded"
KINDS = (EMBEDDED,)


@dataclass(frozen=True)
class Kafka:
    """A running broker: its address, and the settings that suit it."""

    bootstrap: str
    settings: KafkaSettings


@contextmanager
def running_broker() -> Iterator[Kafka]:
    """The embedded broker, stopped afterwards."""
    with temporary_folder() as folder:
        broker = EmbeddedBroker(free_port(), log=folder / "broker.log")
        broker.start()
        try:
            settings = KafkaSettings(kafka_bootstrap=broker.bootstrap, kafka_idempotent_producer=False)
            yield Kafka(broker.bootstrap, settings)
        finally:
            broker.stop()
