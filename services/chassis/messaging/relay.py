"""Publishes the outbox: in order per key, a row deleted only after the broker's acknowledgement.

One relay at a time works on a table, under a session advisory lock; the others stand by. There is no cursor: what is
in the table is what is still to be published, so a transaction that commits late is never passed over.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress

import asyncpg
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from opentelemetry import metrics, propagate, trace

from services.chassis.messaging.kafka import ensure_topics, new_producer
from services.chassis.observability.logs import get_logger
from services.chassis.postgres.connection import SESSION, connect
from services.chassis.postgres.faults import schema_missing
from services.chassis.postgres.pool import prepare_connection
from services.chassis.settings import KafkaSettings
from services.chassis.stopping import pause

BATCH = 500
POLL_SECONDS = 1.0
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
STALLED_AFTER_SECONDS = 15.0

_LOCK = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"
_PENDING = "SELECT position, topic, aggregate_id, payload, headers FROM {table} ORDER BY position LIMIT $1"
_DELETE = "DELETE FROM {table} WHERE position = ANY($1::bigint[])"
_DEPTH = "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 FROM {table}"

_log = get_logger(__name__)
_tracer = trace.get_tracer("cauce")
_meter = metrics.get_meter("cauce")
_depth_gauge = _meter.create_gauge("cauce.outbox.depth", unit="{event}", description="Events not yet published")
_age_gauge = _meter.create_gauge("cauce.outbox.oldest.age", unit="s", description="Age of the oldest such event")
_published = _meter.create_counter("cauce.outbox.published", unit="{event}", description="Events acknowledged")


class OutboxRelay:
    """Runs until cancelled. A fault of the database or the broker is waited out with backoff."""

    def __init__(self, database_url: str, table: str, kafka: KafkaSettings) -> None:
        self._database_url = database_url
        self._table = table
        self._kafka = kafka
        self._wake = asyncio.Event()
        self._last_progress = time.monotonic()
        self._measured = -POLL_SECONDS
        self._fault: str | None = "not started"

    def fault(self) -> str | None:
        """Why the relay does not work now, None when it works (or stands by for another that holds the lock)."""
        if self._fault is None and time.monotonic() - self._last_progress > STALLED_AFTER_SECONDS:
            return "stalled"
        return self._fault

    async def run(self) -> None:
        """Relay until cancelled."""
        failures = 0
        while True:
            try:
                await self._session()
            except Exception as error:  # noqa: BLE001 - whatever it was, events must not wait for a restart
                error = schema_missing(error) or error
                self._fault = f"{type(error).__name__}: {error}"
                _log.warning("relay_interrupted", table=self._table, error=self._fault)
                await pause(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
                failures = 0 if failures >= len(RETRY_SECONDS) else failures + 1

    async def _session(self) -> None:
        connection = await connect(self._database_url, timeout=10, command_timeout=30, server_settings=SESSION)
        try:
            await prepare_connection(connection)
            await self._lead(connection)
            await connection.add_listener(self._table, lambda *_: self._wake.set())
            await ensure_topics(self._kafka)
            producer = new_producer(self._kafka)
            try:
                await producer.start()
                await self._relay(connection, producer)
            finally:
                with suppress(KafkaError, TimeoutError):
                    await producer.stop()
        finally:
            connection.terminate()

    async def _lead(self, connection: asyncpg.Connection) -> None:
        """Wait until this relay is the one that holds the table's lock."""
        while not await connection.fetchval(_LOCK, self._table):
            self._working()
            await self._measure(connection)
            await pause(POLL_SECONDS)
        await self._measure(connection)

    async def _relay(self, connection: asyncpg.Connection, producer: AIOKafkaProducer) -> None:
        while True:
            self._wake.clear()
            await self._measure(connection)
            rows = await connection.fetch(_PENDING.format(table=self._table), BATCH)
            if rows:
                acknowledged, error = await self._publish(producer, rows)
                if acknowledged:
                    await connection.execute(_DELETE.format(table=self._table), acknowledged)
                    _published.add(len(acknowledged), {"table": self._table})
                if error is not None:
                    raise error
            self._working()
            if len(rows) < BATCH:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), POLL_SECONDS)

    async def _publish(
        self, producer: AIOKafkaProducer, rows: Sequence[asyncpg.Record]
    ) -> tuple[list[int], BaseException | None]:
        """Send the rows and await their acks. Return the positions to delete and the first fault.

        Rows of a key behind a failed one of the same key stay, so that the key's order holds.
        """
        sent = [(row, await self._send(producer, row)) for row in rows]
        results = await asyncio.gather(*(future for _, future in sent), return_exceptions=True)
        acknowledged: list[int] = []
        failed_keys: set[str] = set()
        fault: BaseException | None = None
        for (row, _), result in zip(sent, results, strict=True):
            if isinstance(result, BaseException):
                failed_keys.add(row["aggregate_id"])
                fault = fault or result
            elif row["aggregate_id"] not in failed_keys:
                acknowledged.append(row["position"])
        return acknowledged, fault

    async def _send(self, producer: AIOKafkaProducer, row: asyncpg.Record) -> asyncio.Future[object]:
        headers: dict[str, str] = row["headers"]
        with _tracer.start_as_current_span(
            f"publish {row['topic']}", context=propagate.extract(headers), kind=trace.SpanKind.PRODUCER
        ):
            propagate.inject(headers)
            future: asyncio.Future[object] = await producer.send(
                row["topic"],
                value=json.dumps(row["payload"], ensure_ascii=False).encode(),
                key=row["aggregate_id"].encode(),
                headers=[(name, text.encode()) for name, text in headers.items()],
            )
            return future

    async def _measure(self, connection: asyncpg.Connection) -> None:
        """Show what waits, also while it cannot be published; not more than once in ``POLL_SECONDS``."""
        if time.monotonic() - self._measured < POLL_SECONDS:
            return
        self._measured = time.monotonic()
        depth, age = await connection.fetchrow(_DEPTH.format(table=self._table))
        _depth_gauge.set(depth, {"table": self._table})
        _age_gauge.set(age, {"table": self._table})

    def _working(self) -> None:
        self._fault = None
        self._last_progress = time.monotonic()
