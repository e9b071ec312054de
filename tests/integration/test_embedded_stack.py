"""The embedded stack: its servers, and the supervisor that keeps them."""

from __future__ import annotations

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from services.chassis.messaging.kafka import client_options
from tests.support.broker import Kafka
from tests.support.postgres import Database


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
    await connection.execute("CREATE EXTENSION pg_textsearch; CREATE EXTENSION unaccent")
    assert await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'") == "0.8.6"
    lexemes = await connection.fetchval("SELECT to_tsvector('spanish', '¿Cuál «presión» “máxima”…')::text")
    await connection.close()
    assert lexemes == "'cual':1 'maxim':3 'presion':2"


async def test_broker_keeps_and_hands_out_records(kafka: Kafka) -> None:
    async with AIOKafkaProducer(**client_options(kafka.settings)) as producer:
        await producer.send_and_wait("embedded-stack", b"value", key=b"key")
    options = client_options(kafka.settings)
    async with AIOKafkaConsumer("embedded-stack", auto_offset_reset="earliest", **options) as consumer:
        record = await consumer.getone()
    assert (record.key, record.value) == (b"key", b"value")
