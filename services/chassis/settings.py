"""Settings that more than one service reads. Each service's ``settings.py`` builds on them; all names start CAUCE_."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Literal, Self

from pydantic import AliasChoices, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.chassis.models.language import Prices
from services.chassis.models.limiter import Rates
from services.chassis.models.model_settings import LanguageSettings, ModelSettings
from services.chassis.resource_types import DEFAULT_FOLDER


class CauceSettings(BaseSettings):
    """Base of all settings: environment variables that start with ``CAUCE_``, blank ones ignored.

    An error names the setting but not its value: it may hold a password.
    """

    model_config = SettingsConfigDict(
        env_prefix="CAUCE_", env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )


class KafkaSettings(CauceSettings):
    """How to reach the broker.

    ``kafka_idempotent_producer`` is on for Apache Kafka; the embedded broker has no InitProducerId.
    """

    kafka_bootstrap: str = "127.0.0.1:9092"
    kafka_idempotent_producer: bool = True
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_ssl_cafile: str | None = None
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    kafka_sasl_username: str | None = None
    kafka_sasl_password: str | None = Field(default=None, repr=False)
    kafka_replication_factor: int = Field(default=1, ge=1)

    @field_validator("kafka_ssl_cafile")
    @classmethod
    def _can_be_read(cls, path: str | None) -> str | None:
        try:
            if path is not None:
                ssl.create_default_context(cafile=path)
        except OSError as error:
            raise ValueError(f"no certificates can be read there: {error}") from error
        return path


class ShutdownSettings(CauceSettings):
    """How long a process takes to end; ``services.chassis.stopping`` says what comes after it."""

    shutdown_seconds: float = Field(default=8.0, ge=0, description="time to finish what is in hand at SIGTERM")


class ListenSettings(ShutdownSettings):
    """Where a process listens, and how long it bears with callers."""

    host: str = "127.0.0.1"
    caller_idle_seconds: float = Field(
        default=30.0,
        gt=0,
        description="a connection ends whose caller takes nothing of an answer, or ends no header, so long or twice it",
    )
    max_connections: int = Field(
        default=500,
        ge=1,
        description="beyond them, and beyond half the files that may be open, a new one ends the longest idle one",
    )


class HttpSettings(ListenSettings):
    """What an HTTP service serves whom, and where the three services are reached from outside.

    ``scratch_tenants`` lets callers work in scratch tenants beside the stack's own, as ``cauce eval`` does.
    """

    port: int = Field(default=8080, ge=0, le=65_535)
    tenant: str | None = None
    scratch_tenants: bool = False
    files_url: str | None = None
    embeddings_url: str | None = None
    search_url: str | None = None
    max_requests: int = Field(default=400, ge=1, description="requests at once; more are answered 503")
    database_wait_seconds: float = Field(default=5.0, gt=0, description="the longest wait for a free connection")


class ResourceTypeSettings(CauceSettings):
    """Where the types of resources are declared, one folder each."""

    resource_types_dir: Path = DEFAULT_FOLDER


class GeminiSettings(CauceSettings):
    """The Gemini API. What is not set is as ``ModelSettings`` has it; the key may stand in the provider's variables."""

    gemini_api_key: str | None = Field(
        default=None,
        repr=False,
        validation_alias=AliasChoices("CAUCE_GEMINI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
    )
    gemini_base_url: str | None = None
    gemini_vision_model: str | None = None
    gemini_timeout_seconds: float | None = Field(default=None, gt=0)
    gemini_deadline_seconds: float | None = Field(default=None, gt=0)
    gemini_longest_pause_seconds: float | None = Field(default=None, gt=0)
    gemini_concurrency: int | None = Field(default=None, ge=1)
    gemini_quotas: dict[str, Rates] | None = None
    gemini_items_per_call: int | None = Field(default=None, ge=1, le=100)

    def model_settings(self) -> ModelSettings:
        """The same, as the models take it."""
        given = {name: getattr(self, name) for name in GeminiSettings.model_fields}
        return ModelSettings(**{name: value for name, value in given.items() if value is not None})


class LanguageModelSettings(CauceSettings):
    """The language model, as ``LanguageSettings`` has it. Prices are per million tokens, in any one currency."""

    language_model: Literal["none", "gemini", "openai"] = "none"
    language_model_name: str | None = None
    language_base_url: str | None = None
    language_api_key: str | None = Field(default=None, repr=False)
    language_timeout_seconds: float = Field(default=10, gt=0)
    language_concurrency: int = Field(default=8, ge=1)
    language_price_in: float | None = Field(default=None, ge=0)
    language_price_out: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _both_prices_or_none(self) -> Self:
        if (self.language_price_in is None) != (self.language_price_out is None):
            raise ValueError("set CAUCE_LANGUAGE_PRICE_IN and CAUCE_LANGUAGE_PRICE_OUT both, or none")
        return self

    def language_settings(self) -> LanguageSettings:
        """The same, as the models take it."""
        prices = None
        if self.language_price_in is not None and self.language_price_out is not None:
            prices = Prices(self.language_price_in, self.language_price_out)
        return LanguageSettings(
            provider=self.language_model,
            model=self.language_model_name,
            base_url=self.language_base_url,
            api_key=self.language_api_key,
            timeout_seconds=self.language_timeout_seconds,
            concurrency=self.language_concurrency,
            prices=prices,
        )
