"""What every language model promises: an answer of the shape asked for or a typed failure, in bounded time."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import stamina

from services.chassis.kernel.errors import ConfigurationError
from services.chassis.models.language import LanguageModel, LanguageModelError, Prices, Prompt, Usage
from services.chassis.models.model_settings import LanguageSettings, ModelSettings
from services.chassis.models.registry import build_language_model
from tests.support import gemini_server, openai_server
from tests.support.scripted_server import Reply, ScriptedServer

PROMPT = Prompt("plan", "Answer with JSON.", '{"question": "¿Cuánto?"}', 100)
SHORT, LONG = 0.3, 20.0
GOOD = {"title": "Válvula «PSV»", "steps": [{"number": 1, "texts": ["abrir", "cerrar"]}]}


@dataclass(frozen=True)
class Step:
    number: int
    texts: list[str]


@dataclass(frozen=True)
class Plan:
    title: str
    steps: list[Step]


@dataclass
class Dialect:
    """A server of one API, and how it says things."""

    server: ScriptedServer[Any]
    name: str

    def settings(self, timeout_seconds: float = LONG) -> ModelSettings:
        if self.name == "gemini":
            language = LanguageSettings("gemini", timeout_seconds=timeout_seconds)
            return ModelSettings(
                gemini_api_key=gemini_server.API_KEY, gemini_base_url=self.server.url, language=language
            )
        return ModelSettings(
            language=LanguageSettings(
                "openai",
                openai_server.MODEL,
                f"{self.server.url}/v1/",
                openai_server.KEY,
                timeout_seconds=timeout_seconds,
            )
        )

    def text(self, text: str | None, *, finish: str | None = None) -> Reply:
        if self.name == "gemini":
            return gemini_server.description(text, finish or "STOP")
        return openai_server.completion(text, finish_reason=finish or "stop")

    @property
    def whole_usage(self) -> Usage:
        return Usage(258, 20) if self.name == "gemini" else Usage(100, 10)

    @property
    def cut(self) -> str:
        return "MAX_TOKENS" if self.name == "gemini" else "length"

    @property
    def blocked(self) -> str:
        return "SAFETY" if self.name == "gemini" else "content_filter"

    def failure(self, status: int, retry_after: str | None = None) -> Reply:
        headers = (("Retry-After", retry_after),) if retry_after else ()
        return Reply(status, {"error": {"code": status, "message": "as told", "status": "ANY"}}, headers)


@pytest.fixture(params=["openai", "gemini"])
def dialect(request: pytest.FixtureRequest) -> Iterator[Dialect]:
    server: ScriptedServer[Any] = (
        gemini_server.GeminiServer() if request.param == "gemini" else openai_server.OpenAiServer()
    )
    with server:
        yield Dialect(server, request.param)


@pytest.fixture
async def model(dialect: Dialect) -> AsyncIterator[LanguageModel]:
    built = build_language_model(dialect.settings())
    assert built is not None
    yield built
    await built.aclose()


@pytest.fixture(autouse=True)
def no_backoff() -> Iterator[None]:
    """Attempts follow one another at once; waits that the server asks for are real."""
    with stamina.set_testing(True, attempts=100, cap=True):
        yield


async def failure_of(model: LanguageModel) -> LanguageModelError:
    with pytest.raises(LanguageModelError) as caught:
        await model.answer(PROMPT, Plan)
    return caught.value


async def test_an_answer_has_the_shape_that_was_asked_for_and_says_what_it_took(
    dialect: Dialect, model: LanguageModel
) -> None:
    dialect.server.then(dialect.text(json.dumps(GOOD)))

    answer = await model.answer(PROMPT, Plan)

    assert answer.value == Plan("Válvula «PSV»", [Step(1, ["abrir", "cerrar"])])
    assert answer.usage == dialect.whole_usage


async def test_the_server_is_told_the_schema_and_our_instructions_apart_from_the_material(
    dialect: Dialect, model: LanguageModel
) -> None:
    dialect.server.then(dialect.text(json.dumps(GOOD)))

    await model.answer(PROMPT, Plan)

    body = dialect.server.requests[0].body
    sent = json.dumps(body)
    assert sent.count('"additionalProperties": false') == 2
    if dialect.name == "openai":
        assert [message["content"] for message in body["messages"]] == [PROMPT.instructions, PROMPT.content]
        assert (body["temperature"], body["max_tokens"]) == (0, 100)
    else:
        assert body["systemInstruction"]["parts"] == [{"text": PROMPT.instructions}]
        assert body["contents"][0]["parts"] == [{"text": PROMPT.content}]
        assert body["generationConfig"]["maxOutputTokens"] > 100


BAD_TEXTS = (
    *("", "  ", "null", "[]", "Aquí está el plan:", '{"title": "a", "steps": [', '```json\n{"title": "a"}\n```'),
    json.dumps(GOOD) + "x",
    json.dumps({"title": "a"}),
    json.dumps({"title": 1, "steps": []}),
    json.dumps({"title": "a", "steps": [{"number": "1", "texts": []}]}),
    json.dumps({"title": "a", "steps": [{"number": 1, "texts": [None]}]}),
    "[" * 100,
)


async def test_whatever_else_the_model_writes_is_an_invalid_answer_with_what_it_took(
    dialect: Dialect, model: LanguageModel
) -> None:
    for text in BAD_TEXTS:
        dialect.server.then(dialect.text(text))

        failure = await failure_of(model)

        assert failure.code == "LANGUAGE_MODEL_ANSWER_INVALID", text
        assert failure.usage == dialect.whole_usage
    assert len(dialect.server.requests) == len(BAD_TEXTS)


async def test_an_answer_that_broke_off_or_was_blocked_is_no_answer_even_if_it_can_be_read(
    dialect: Dialect, model: LanguageModel
) -> None:
    for finish in (dialect.cut, dialect.blocked):
        dialect.server.then(dialect.text(json.dumps(GOOD), finish=finish))

        failure = await failure_of(model)

        assert failure.code in {"LANGUAGE_MODEL_ANSWER_INVALID", "LANGUAGE_MODEL_REFUSED"}
        assert failure.usage == dialect.whole_usage


BAD_BODIES: tuple[Any, ...] = (
    *("", "<html>Log in</html>", "[]", "null", '"text"', "7", "{}", '{"choices": []}', '{"choices": [null]}'),
    *('{"choices": [{"message": null}]}', '{"choices": [{"message": {"content": ["a"]}}]}', '{"choices": {"0": 1}}'),
    *('{"candidates": []}', '{"candidates": [null]}', '{"candidates": 5}', '{"candidates": [{"content": 1}]}'),
    '{"candidates": [{"finishReason": "STOP", "content": {"parts": [{"text": 5}]}}]}',
    '{"candidates": [{"finishReason": "STOP", "content": {"parts": null}}]}',
    b"\xff\xfe\x00",
    "[" * 50_000,
)


async def test_what_is_not_the_api_is_a_failure_and_no_answer(dialect: Dialect, model: LanguageModel) -> None:
    for reply in (dialect.text("[" * 50_000), *(Reply(200, body) for body in BAD_BODIES)):
        dialect.server.then(*[reply] * 4)

        failure = await failure_of(model)

        assert failure.code.startswith("LANGUAGE_MODEL_"), str(reply.body)[:100]
        dialect.server.forget_script()


async def test_a_huge_or_compressed_answer_is_not_taken(dialect: Dialect, model: LanguageModel) -> None:
    huge = dialect.text(json.dumps({"title": "a" * 2_000_000, "steps": []}))
    packed = gzip.compress(json.dumps(huge.body).encode())
    for reply in (huge, Reply(200, packed, (("Content-Encoding", "gzip"),))):
        dialect.server.then(*[reply] * 4)

        failure = await failure_of(model)

        assert failure.code == "LANGUAGE_MODEL_UNAVAILABLE"
        assert "cannot be taken" in failure.message
        dialect.server.forget_script()


async def test_a_passing_fault_is_tried_again_and_a_lasting_one_is_told(dialect: Dialect, model: LanguageModel) -> None:
    dialect.server.then(dialect.failure(503), dialect.failure(500), dialect.text(json.dumps(GOOD)))
    assert (await model.answer(PROMPT, Plan)).value.title == GOOD["title"]

    dialect.server.then(*[dialect.failure(500)] * 4)
    assert (await failure_of(model)).code == "LANGUAGE_MODEL_UNAVAILABLE"


async def test_an_error_page_is_told_whatever_charset_it_says_it_is_in(dialect: Dialect, model: LanguageModel) -> None:
    for charset in ("hex", "rot13", "zlib", "idna", "no-such"):
        page = Reply(400, "zz.. is not hex", (("Content-Type", f"text/plain; charset={charset}"),))
        dialect.server.then(*[page] * 4)

        failure = await failure_of(model)

        assert failure.code == "LANGUAGE_MODEL_REFUSED", charset
        dialect.server.forget_script()


async def test_a_server_that_asks_to_wait_a_moment_is_waited_for(dialect: Dialect, model: LanguageModel) -> None:
    dialect.server.then(*[dialect.failure(429, "0.1")] * 6, dialect.text(json.dumps(GOOD)))

    assert (await model.answer(PROMPT, Plan)).value.title == GOOD["title"]


async def test_a_wait_that_is_too_long_is_told_at_once_with_its_length(dialect: Dialect, model: LanguageModel) -> None:
    dialect.server.then(dialect.failure(429, "600"))

    failure = await failure_of(model)

    assert failure.code == "LANGUAGE_MODEL_UNAVAILABLE"
    assert failure.retry_after is not None
    assert failure.retry_after > 200


async def test_a_refusal_that_names_no_wait_is_not_said_to_ask_for_one() -> None:
    with openai_server.OpenAiServer() as server:
        model = build_language_model(Dialect(server, "openai").settings(timeout_seconds=SHORT))
        assert model is not None
        server.then(*[openai_server.failure(429)] * 3)

        failure = await failure_of(model)

        assert (failure.code, "takes no more now" in failure.message) == ("LANGUAGE_MODEL_UNAVAILABLE", True)
        assert "asks to wait" not in failure.message
        assert " 0 seconds" not in failure.message
        await model.aclose()


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_prompt_that_is_refused_is_not_sent_again(dialect: Dialect, model: LanguageModel, status: int) -> None:
    dialect.server.then(dialect.failure(status))

    assert (await failure_of(model)).code == "LANGUAGE_MODEL_REFUSED"
    assert len(dialect.server.requests) == 1


async def test_a_server_that_hangs_or_is_gone_is_unavailable(dialect: Dialect) -> None:
    impatient = build_language_model(dialect.settings(timeout_seconds=SHORT))
    assert impatient is not None
    for _ in range(4):
        dialect.server.then_hang()
    assert (await failure_of(impatient)).code == "LANGUAGE_MODEL_UNAVAILABLE"

    dialect.server.stop()
    assert (await failure_of(impatient)).code == "LANGUAGE_MODEL_UNAVAILABLE"
    await impatient.aclose()


async def test_usage_that_makes_no_sense_is_not_passed_on() -> None:
    with openai_server.OpenAiServer() as server:
        model = build_language_model(Dialect(server, "openai").settings())
        assert model is not None
        server.then(openai_server.completion(GOOD, usage=None), openai_server.completion(GOOD, usage={}))
        for _ in range(2):
            assert (await model.answer(PROMPT, Plan)).usage == Usage()
        for senseless in (-1, 10**40, 1.5, "many", None, [7]):
            usage = {"prompt_tokens": senseless, "completion_tokens": 10}
            server.then(openai_server.completion(GOOD, usage=usage), openai_server.completion(GOOD, usage=senseless))
            assert (await model.answer(PROMPT, Plan)).usage == Usage(None, 10)
            assert (await model.answer(PROMPT, Plan)).usage == Usage()
        await model.aclose()


async def test_a_whole_answer_that_is_none_of_the_api_is_not_asked_for_again() -> None:
    with openai_server.OpenAiServer() as server:
        model = build_language_model(Dialect(server, "openai").settings())
        assert model is not None
        server.then(Reply(200, {"choices": None}), openai_server.completion(GOOD))

        assert (await failure_of(model)).code == "LANGUAGE_MODEL_ANSWER_INVALID"
        assert len(server.requests) == 1
        await model.aclose()


async def test_a_model_that_thinks_gets_the_parameters_that_it_wants_from_then_on() -> None:
    with openai_server.OpenAiServer(lambda _: GOOD) as server:
        model = build_language_model(Dialect(server, "openai").settings())
        assert model is not None
        complaint = "Unsupported parameter: 'max_tokens' is not supported with this model."
        server.then(openai_server.failure(400, complaint, param="max_tokens"))

        await model.answer(PROMPT, Plan)
        await model.answer(PROMPT, Plan)

        first, *others = [request.body for request in server.requests]
        assert "max_tokens" in first
        assert len(others) == 2
        for body in others:
            assert body["max_completion_tokens"] > PROMPT.max_tokens
            assert not {"max_tokens", "temperature"} & set(body)
        await model.aclose()


async def test_no_failure_tells_the_key() -> None:
    with openai_server.OpenAiServer() as server:
        settings = Dialect(server, "openai").settings().language
        wrong = build_language_model(
            ModelSettings(language=LanguageSettings("openai", settings.model, settings.base_url, "another-key"))
        )
        assert wrong is not None

        failure = await failure_of(wrong)

        assert failure.code == "LANGUAGE_MODEL_UNAVAILABLE"
        assert "Incorrect API key" in failure.message
        assert "another-key" not in failure.message
        assert openai_server.KEY not in repr(settings)
        await wrong.aclose()


@pytest.mark.parametrize(
    "incomplete", [LanguageSettings("openai", "name"), LanguageSettings("openai", None, "http://a")]
)
def test_a_model_without_an_address_or_a_name_is_refused(incomplete: LanguageSettings) -> None:
    with pytest.raises(ConfigurationError, match="LANGUAGE_MODEL_INCOMPLETE"):
        build_language_model(ModelSettings(language=incomplete))


def test_none_is_configured_by_default_and_gemini_needs_its_key() -> None:
    assert build_language_model(ModelSettings()) is None
    with pytest.raises(ConfigurationError, match="GEMINI_KEY_MISSING"):
        build_language_model(ModelSettings(language=LanguageSettings("gemini")))


def test_a_cost_is_known_where_the_tokens_are() -> None:
    prices = Prices(0.5, 2)

    assert prices.cost(Usage(1_000_000, 500_000)) == 1.5
    assert prices.cost(Usage(1, None)) is None
