"""Events of the embeddings context, on ``embeddings.events``."""

from __future__ import annotations

from contracts.events.envelope import EventType

CONTEXT = "embeddings"
FILE_EMBEDDED = EventType(CONTEXT, "FileEmbedded")
FILE_EMBEDDING_FAILED = EventType(CONTEXT, "FileEmbeddingFailed")
FILE_EMBEDDING_REMOVED = EventType(CONTEXT, "FileEmbeddingRemoved")
