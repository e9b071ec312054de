"""How every client of the broker is configured, and the topics made with their stated partitions."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAlreadyExistsError,
    UnsupportedSaslMechanismError,
    for_code,
)

from contracts.events.topics import ALL_TOPICS, Topic
from services.chassis.kernel.errors import CauceError, ConfigurationError, UnavailableError
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
    """Make the topics that are missing. A broker that makes them by itself would give them another partition count.

    Raises:
        ConfigurationError: ``BROKER_REFUSED`` or ``BROKER_NOT_TRUSTED``: it does not take us, or we do not take it.
        UnavailableError: ``BROKER_UNAVAILABLE``.
        KafkaError: the broker is there, and could not do it.
    """
    admin = AIOKafkaAdminClient(**client_options(settings))
    try:
        await admin.start()
        response = await admin.create_topics(
            [NewTopic(topic.name, topic.partitions, settings.kafka_replication_factor) for topic in topics]
        )
        for name, code, *_ in response.topic_errors:
            error = for_code(code)
            if error is not TopicAlreadyExistsError and code != 0:
                raise KafkaError(f"the topic {name} could not be made: {error.__name__}")
    except KafkaConnectionError as error:
        raise await _reason(settings, error) from error
    finally:
        await admin.close()


async def _reason(settings: KafkaSettings, fault: Exception) -> CauceError:
    """Why no connection could be made, which aiokafka says in its log only."""
    options = client_options(settings)
    for host, port, _ in collect_hosts(options.pop("bootstrap_servers")):
        try:
            (await create_conn(host, port, **options)).close()
        except (OSError, TimeoutError, KafkaError) as error:
            fault = error
    said = f"at {settings.kafka_bootstrap}: {type(fault).__name__}: {fault}"
    if isinstance(fault, SaslAuthenticationFailed | UnsupportedSaslMechanismError):
        return ConfigurationError(
            "BROKER_REFUSED",
            f"the broker does not know who we are {said}",
            where="CAUCE_KAFKA_SASL_PASSWORD",
            remedy="look at CAUCE_KAFKA_SASL_MECHANISM, CAUCE_KAFKA_SASL_USERNAME and CAUCE_KAFKA_SASL_PASSWORD",
        )
    if isinstance(fault, ssl.SSLCertVerificationError):
        return ConfigurationError(
            "BROKER_NOT_TRUSTED",
            f"the broker's certificate is not one to trust {said}",
            where="CAUCE_KAFKA_SSL_CAFILE",
            remedy="name the certificate of who signed it in CAUCE_KAFKA_SSL_CAFILE, and the host that it is for in "
            "CAUCE_KAFKA_BOOTSTRAP",
        )
    return UnavailableError(
        "BROKER_UNAVAILABLE",
        f"no broker answers {said}",
        where="CAUCE_KAFKA_BOOTSTRAP",
        remedy="look whether it runs, and at CAUCE_KAFKA_BOOTSTRAP and CAUCE_KAFKA_SECURITY_PROTOCOL",
    )
