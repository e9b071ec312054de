"""What the catalogue announces, as it arrives on the broker: the published examples, and nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from jsonschema import Draft202012Validator

from contracts.events.topics import CATALOG_EVENTS
from services.chassis.resource_types import load_resource_types
from tests.support.broker import Kafka
from tests.support.files import PATIENCE, running_files
from tests.support.postgres import Database

CONTRACT = Path(__file__).parents[2] / "contracts" / "events"
ID = 1001


async def test_every_change_arrives_as_its_published_example(database: Database, kafka: Kafka, tmp_path: Path) -> None:
    tenant = uuid4().hex
    schemas = {
        name: Draft202012Validator(json.loads((CONTRACT / "schemas" / f"{name}.json").read_text(encoding="utf-8")))
        for name in ("headers", "payload")
    }
    async with running_files(database, tmp_path / "objects", tenant=tenant, **kafka.options) as files:
        for type_name in load_resource_types():
            url = f"/resources/{type_name}"
            await files.http.put(f"{url}/{ID}", json={"name": "Depósito"})
            await files.http.post(f"{url}:batch", content=json.dumps({"id": ID, "name": "Depósito nº 2"}))
            await files.http.delete(f"{url}/{ID}")
        records = await _read(kafka, tenant, 3 * len(load_resource_types()))

    assert len({record.partition for record in records}) == 1
    sent = [dict(record.headers)["ce_type"].decode() for record in records]
    assert sent == [
        str(event)
        for type_ in load_resource_types().values()
        for event in (type_.changed, type_.changed, type_.deleted)
    ]
    for record in records:
        headers = {name: value.decode() for name, value in record.headers}
        example = json.loads((CONTRACT / "examples" / f"{headers['ce_type']}.json").read_text(encoding="utf-8"))
        schemas["headers"].validate(headers)
        schemas["payload"].validate(json.loads(record.value))
        own = ("ce_id", "ce_time", "traceparent")
        assert {**headers, **{name: example["headers"][name] for name in own}} == example["headers"]
        assert record.key.decode() == example["key"]
        assert json.loads(record.value).keys() == example["value"].keys()
    names = [json.loads(record.value)["name"] for record in records]
    assert names == ["Depósito", "Depósito nº 2", "Depósito nº 2"] * len(load_resource_types())


async def _read(kafka: Kafka, tenant: str, count: int) -> list[ConsumerRecord]:
    """The tenant's first records on the catalogue's topic, which tests share."""
    consumer = AIOKafkaConsumer(CATALOG_EVENTS.name, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    records: list[ConsumerRecord] = []
    try:
        async with asyncio.timeout(PATIENCE):
            while len(records) < count:
                record = await consumer.getone()
                if json.loads(record.value).get("tenant") == tenant:
                    records.append(record)
    finally:
        await consumer.stop()
    return records
