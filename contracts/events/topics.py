"""The topic table: one topic per kind of aggregate, keyed by aggregate id.

The partition count is part of the contract: a key stays on its partition only while the count is fixed,
and it bounds how many members of a consumer group work at once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its fixed number of partitions."""

    name: str
    partitions: int = 12


FILES_EVENTS = Topic("files.events")
CATALOG_EVENTS = Topic("catalog.events")
EMBEDDINGS_EVENTS = Topic("embeddings.events")
DEAD_LETTERS = Topic("embeddings.dead-letters")

ALL_TOPICS = (FILES_EVENTS, CATALOG_EVENTS, EMBEDDINGS_EVENTS, DEAD_LETTERS)
