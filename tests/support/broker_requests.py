"""Counts what this process asks of a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from aiokafka.client import AIOKafkaClient

KINDS = ("produce", "offsetcommit", "fetch", "heartbeat", "metadata")


@contextmanager
def counted_requests() -> Iterator[Counter[str]]:
    """The requests of the time of the context, by kind: produce, fetch, commit, heartbeat, metadata and other."""
    counts: Counter[str] = Counter()
    send = AIOKafkaClient.send

    async def counting(client: AIOKafkaClient, node: object, request: object, **options: object) -> object:
        name = type(request).__name__.lower()
        kind = next((kind for kind in KINDS if kind in name and "offsetfetch" not in name), "other")
        counts["commit" if kind == "offsetcommit" else kind] += 1
        return await send(client, node, request, **options)

    with patch.object(AIOKafkaClient, "send", counting):
        yield counts
