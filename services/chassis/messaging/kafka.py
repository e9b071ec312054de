"""How every client of the broker is configured, and the topics made with their stated partitions."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from contracts.events.topics import ALL_TOPICS, Topic
from services.chassis.settings import KafkaSettings

REQUEST_TIMEOUT_MS = 10_000


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """Connection options that aiokafka's clients share."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.kafka_bootstrap,
        "security_protocol": settings.kafka_security_protocol,
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
    }
    if settings.kafka_security_protocol.endswith("SSL"):
        options["ssl_context"] = ssl.create_default_context(cafile=settings.kafka_ssl_cafile)
    if settings.kafka_security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = settings.kafka_sasl_mechanism
        options["sasl_plain_username"] = settings.kafka_sasl_username
        options["sasl_plain_password"] = settings.kafka_sasl_password
    return options


def new_producer(settings: KafkaSettings) -> AIOKafkaProducer:
    """A producer that waits for every in-sync replica; idempotent where the broker can."""
    return AIOKafkaProducer(
        **client_options(settings),
        acks="all",
        enable_idempotence=settings.kafka_idempotent_producer,
        linger_ms=5,
        compression_type="zstd",
    )


async def ensure_topics(settings: KafkaSettings, topics: Sequence[Topic] = ALL_TOPICS) -> None:
    """Make the topics that are missing. A broker that makes them by itself would give them another partition count."""
    admin = AIOKafkaAdminClient(**client_options(settings))
    await admin.start()
    try:
        response = await admin.create_topics(
            [NewTopic(topic.name, topic.partitions, settings.kafka_replication_factor) for topic in topics]
        )
        for name, code, *_ in response.topic_errors:
            error = for_code(code)
            if error is not TopicAlreadyExistsError and code != 0:
                raise KafkaError(f"the topic {name} could not be made: {error.__name__}")
    finally:
        await admin.close()
