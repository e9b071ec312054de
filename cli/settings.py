"""The environment as the command reads it."""

from __future__ import annotations

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict


class CommandSettings(BaseSettings):
    """Where the stack is: ``CAUCE_FILES_URL`` and its kin, ``CAUCE_URL`` of any service, ``CAUCE_DATA_DIR``."""

    model_config = SettingsConfigDict(env_prefix="CAUCE_", env_ignore_empty=True, extra="ignore", frozen=True)

    url: str | None = None
    files_url: str | None = None
    embeddings_url: str | None = None
    search_url: str | None = None
    data_dir: Path = Path(".cauce")
