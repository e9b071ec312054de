"""The port to language models: a prompt in, a checked value out, with what it took.

An answer is of the shape that was asked for, or there is none: whatever else a server sends, in whatever way it fails,
is a ``LanguageModelError``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from services.chassis.kernel.errors import UnavailableError

T = TypeVar("T")

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is asked.

    Attributes:
        operation: what it is for, in traces and metrics.
        instructions: ours. They say which JSON to answer with, for servers that do not enforce it.
        content: what they are about. Text of documents and callers stands here only, as JSON.
        max_tokens: of the answer, without what a model thinks before it.
    """

    operation: str
    instructions: str
    content: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that were read and written, as the server counted them; None where it did not say."""

    tokens_in: int | None = None
    tokens_out: int | None = None


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in one currency."""

    tokens_in: float
    tokens_out: float

    def cost(self, usage: Usage) -> float | None:
        """What the tokens cost, None where they are not known."""
        if usage.tokens_in is None or usage.tokens_out is None:
            return None
        return (usage.tokens_in * self.tokens_in + usage.tokens_out * self.tokens_out) / _MILLION


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A value of the shape that was asked for, and what it took."""

    value: T
    usage: Usage


class LanguageModelError(UnavailableError):
    """No answer that could be relied on.

    Codes: ``LANGUAGE_MODEL_UNAVAILABLE`` (away, busy or too slow), ``LANGUAGE_MODEL_REFUSED`` (it does not take this
    prompt), ``LANGUAGE_MODEL_ANSWER_INVALID`` (it answered something else, or broke off).

    Attributes:
        usage: what the answer took all the same.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        remedy: str | None = None,
        retry_after: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(code, message, remedy=remedy, retry_after=retry_after)
        self.usage = usage or Usage()


class LanguageModel(Protocol):
    """A language model behind some API."""

    @property
    def name(self) -> str:
        """Which model answers."""

    async def answer(self, prompt: Prompt, shape: type[T]) -> Answer[T]:
        """Ask, and wait no longer than the configured time.

        Args:
            prompt: what is asked.
            shape: a dataclass of JSON's types, whose schema the server is told.

        Raises:
            LanguageModelError: in every other case than an answer of this shape.
        """

    async def aclose(self) -> None:
        """Close the connections."""
