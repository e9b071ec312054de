"""The only module of the files service that reads the environment."""

from __future__ import annotations

from pydantic import Field

from services.chassis.settings import HttpSettings, KafkaSettings, ResourceTypeSettings

GIBIBYTE = 1024**3


class FilesSettings(HttpSettings, KafkaSettings, ResourceTypeSettings):
    """Settings of the files service, each as ``CAUCE_<NAME>``."""

    files_database_url: str
    storage_url: str
    upload_max_bytes: int = Field(default=GIBIBYTE, ge=0, description="the most that a file may have")
    upload_idle_seconds: float = Field(default=60.0, gt=0, description="an upload ends when no byte comes so long")
    upload_least_rate: int = Field(default=16_384, ge=1, description="slower (bytes a second), one may lose its place")
    upload_grace_seconds: float = Field(default=30.0, ge=0, description="how far it may be behind that")
    storage_grace_seconds: float = Field(default=600.0, ge=0, description="replaced bytes may be read so long")
    upkeep_seconds: float = Field(default=5.0, gt=0, description="how often overdue uploads and garbage are looked for")
    database_statement_seconds: float = Field(default=30.0, gt=0, description="the longest that a statement may take")
    max_uploads: int = Field(default=32, ge=1, description="uploads at once; each takes about 20 MiB of memory")
    max_event_streams: int = Field(default=200, ge=1, description="open streams of status at once")
    max_downloads: int = Field(default=100, ge=1, description="files that are sent at once")
    status_poll_seconds: float = Field(default=0.5, gt=0, description="how often a stream looks for a change")
