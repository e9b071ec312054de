"""Any server that speaks the chat completions API of OpenAI: vLLM, llama.cpp, Ollama, OpenAI itself."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Annotated, Any, TypeVar

import httpx2
import stamina
from pydantic import Field, TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from services.chassis.kernel.errors import ConfigurationError
from services.chassis.models.language import Answer, LanguageModelError, Prompt, Usage
from services.chassis.models.limiter import AskedToWaitError, CallLimiter, CallQuota, Cost
from services.chassis.models.model_settings import LanguageSettings
from services.chassis.models.structured import (
    MOST_TOKENS,
    SHORT_ANSWER_BYTES,
    THINKING_TOKENS,
    UNCOMPRESSED,
    bounded,
    invalid_answer,
    read_answer,
    retry_after,
    schema_of,
)
from services.chassis.models.telemetry import count_tokens, observed_call

PROVIDER = "openai"

_ATTEMPTS = 3
_UNEXPLAINED_WAIT_SECONDS = 0.5
_SHORTEST_WAIT_SECONDS = 0.05
_LEASE_MARGIN_SECONDS = 10

T = TypeVar("T")


def _none_if_odd(given: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """What is only told besides spoils no answer."""
    try:
        return read(given)
    except ValidationError:
        return None


_COUNT = Annotated[Annotated[int, Field(ge=0, le=MOST_TOKENS)] | None, WrapValidator(_none_if_odd)]


@dataclass(frozen=True, slots=True)
class _Message:
    content: str | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class _Choice:
    message: _Message
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Tokens:
    prompt_tokens: _COUNT = None
    completion_tokens: _COUNT = None


@dataclass(frozen=True, slots=True)
class _Completion:
    """What is read of a completion."""

    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: Annotated[_Tokens | None, WrapValidator(_none_if_odd)] = None


@dataclass(frozen=True, slots=True)
class _Complaint:
    message: str = ""
    param: str | None = None


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is read of an error."""

    error: _Complaint = field(default_factory=_Complaint)


_COMPLETION = TypeAdapter(_Completion)
_PROBLEM = TypeAdapter(_Problem)


class _StatusError(Exception):
    """The server answered with an error."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(f"status {response.status_code}")
        self.status = response.status_code
        self.asked_delay = retry_after(response.headers)
        try:
            self.complaint = _PROBLEM.validate_json(response.content).error
        except ValidationError:
            self.complaint = _Complaint(response.text)


class OpenAiLanguageModel:
    """Implements ``LanguageModel``. The server enforces the answer's schema if it can; it is checked in any case.

    Raises:
        ConfigurationError: ``LANGUAGE_MODEL_INCOMPLETE``.
    """

    def __init__(self, settings: LanguageSettings, quota: CallQuota) -> None:
        if not settings.base_url or not settings.model:
            raise ConfigurationError(
                "LANGUAGE_MODEL_INCOMPLETE",
                "a language model is configured without its address or its name",
                where="CAUCE_LANGUAGE_BASE_URL, CAUCE_LANGUAGE_MODEL_NAME",
                remedy="set both, for instance http://127.0.0.1:8000/v1 and the name that the server knows",
            )
        self._model = settings.model
        self._timeout = settings.timeout_seconds
        self._key = settings.api_key
        self._url = f"{settings.base_url.rstrip('/')}/chat/completions"
        self._limiter = CallLimiter(quota, lease_seconds=self._timeout + _LEASE_MARGIN_SECONDS)
        self._is_newer = False
        self._http = httpx2.AsyncClient(
            headers={**UNCOMPRESSED, **({"Authorization": f"Bearer {self._key}"} if self._key else {})},
            timeout=self._timeout,
            event_hooks={"response": [bounded(SHORT_ANSWER_BYTES)]},
        )

    @property
    def name(self) -> str:
        """Which model answers."""
        return self._model

    async def answer(self, prompt: Prompt, shape: type[T]) -> Answer[T]:
        """Ask, and wait no longer than the configured time. Raises LanguageModelError."""
        completion = await self._complete(prompt, shape)
        tokens = completion.usage or _Tokens()
        usage = Usage(tokens.prompt_tokens, tokens.completion_tokens)
        count_tokens(PROVIDER, self._model, prompt.operation, (usage.tokens_in or 0) + (usage.tokens_out or 0))
        choice = completion.choices[0]
        if choice.finish_reason == "length":
            raise invalid_answer(f"it broke off after {usage.tokens_out or 'too many'} tokens", usage)
        if choice.finish_reason == "content_filter" or choice.message.refusal:
            raise LanguageModelError("LANGUAGE_MODEL_REFUSED", f"{self._model} refused to answer", usage=usage)
        return read_answer(choice.message.content, shape, usage)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _complete(self, prompt: Prompt, shape: type[Any]) -> _Completion:
        try:
            async with asyncio.timeout(self._timeout) as scope:
                async for attempt in stamina.retry_context(
                    on=_passes, attempts=_ATTEMPTS, timeout=None, wait_initial=0.2, wait_max=2, wait_jitter=0.2
                ):
                    with attempt:
                        return await self._send_when_allowed(prompt, shape, scope)
        except AskedToWaitError as error:
            raise self._unavailable(
                f"takes no more now, and is not asked for another {error.seconds:.1f} seconds", error.seconds
            ) from error
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise self._unavailable(f"gave no answer within {self._timeout:g} seconds") from error
        except httpx2.DecodingError as error:
            raise self._unavailable(f"gave an answer that cannot be taken: {error}") from error
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise self._unavailable(f"cannot be reached: {type(error).__name__}: {error}") from error
        except ValidationError as error:
            raise invalid_answer("it is not that of a chat completions API", Usage()) from error
        except _StatusError as error:
            said = shorten(
                self._without_key(f"answered {error.status}: {error.complaint.message or 'no message'}"), 300
            )
            if error.status in {400, 413, 422}:
                raise LanguageModelError("LANGUAGE_MODEL_REFUSED", f"{self._model} {said}") from error
            raise self._unavailable(said) from error
        raise AssertionError("a retry ends with an answer or an error")

    async def _send_when_allowed(self, prompt: Prompt, shape: type[Any], scope: asyncio.Timeout) -> _Completion:
        """Send as soon as the server lets it. Being asked to wait is never an attempt."""
        unexplained = 0
        while True:
            left = (scope.when() or math.inf) - asyncio.get_running_loop().time()
            async with self._limiter.slot(self._model, Cost(1), longest_pause=left):
                try:
                    return await self._send(prompt, shape)
                except _StatusError as error:
                    delay = error.asked_delay
                    if error.status == 429 and delay is None:
                        delay = _UNEXPLAINED_WAIT_SECONDS * 2**unexplained
                        unexplained += 1
                    if error.status not in {429, 503} or delay is None:
                        raise
                    await self._limiter.pause(self._model, max(delay, _SHORTEST_WAIT_SECONDS))

    async def _send(self, prompt: Prompt, shape: type[Any]) -> _Completion:
        with observed_call(PROVIDER, self._model, prompt.operation):
            response = await self._http.post(self._url, json=self._body(prompt, shape))
            if response.status_code != 200:
                error = _StatusError(response)
                if response.status_code == 400 and not self._is_newer and _wants_newer_parameters(error.complaint):
                    self._is_newer = True
                    return await self._send(prompt, shape)
                raise error
            return _COMPLETION.validate_json(response.content)

    def _body(self, prompt: Prompt, shape: type[Any]) -> Mapping[str, Any]:
        limits: dict[str, Any] = {"max_tokens": prompt.max_tokens, "temperature": 0}
        if self._is_newer:
            limits = {"max_completion_tokens": prompt.max_tokens + THINKING_TOKENS}
        schema = {"name": prompt.operation, "strict": True, "schema": schema_of(shape)}
        return {
            "model": self._model,
            "messages": [
                {"role": "system", "content": prompt.instructions},
                {"role": "user", "content": prompt.content},
            ],
            "response_format": {"type": "json_schema", "json_schema": schema},
            **limits,
        }

    def _unavailable(self, what: str, wait: float | None = None) -> LanguageModelError:
        return LanguageModelError(
            "LANGUAGE_MODEL_UNAVAILABLE", self._without_key(f"{self._model} {what}"), retry_after=wait
        )

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "...") if self._key else text


def _passes(error: Exception) -> bool:
    """Whether a fault may pass by itself."""
    if isinstance(error, _StatusError):
        return error.status in {408, 500, 502, 503, 504}
    return isinstance(error, httpx2.TransportError)


def _wants_newer_parameters(complaint: _Complaint) -> bool:
    """Models that think refuse ``max_tokens`` and ``temperature``, and say so."""
    return any(name == complaint.param or f"'{name}'" in complaint.message for name in ("max_tokens", "temperature"))
