"""The real google-genai package against a server that behaves, and misbehaves, like the Gemini API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest
import stamina
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from services.chassis.kernel.errors import InvalidInputError, UnavailableError
from services.chassis.models import gemini as gemini_module
from services.chassis.models import limiter, telemetry
from services.chassis.models.failures import CallFailedError, ImageNotDescribedError
from services.chassis.models.gemini import GeminiEmbedder, GeminiVision
from services.chassis.models.limiter import LONGEST_PAUSE_SECONDS, ProcessQuota, Rates
from services.chassis.models.registry import GEMINI_EMBEDDING_001, GEMINI_EMBEDDING_2, ModelSettings
from tests.support.files import PATIENCE, eventually
from tests.support.gemini_server import (
    API_KEY,
    MOST_ITEMS,
    GeminiServer,
    Reply,
    Request,
    description,
    embed,
    failure,
)

ATTEMPTS = 4
QUOTA = ("RESOURCE_EXHAUSTED",)


@pytest.fixture
def gemini() -> Iterator[GeminiServer]:
    with GeminiServer() as server:
        yield server


@pytest.fixture(autouse=True)
def no_backoff() -> Iterator[None]:
    """Attempts follow one another at once; waits that the server asks for are real."""
    with stamina.set_testing(True, attempts=100, cap=True):
        yield


def settings(gemini: GeminiServer, **changes: Any) -> ModelSettings:
    return ModelSettings(
        **{"gemini_api_key": API_KEY, "gemini_base_url": gemini.url, "gemini_deadline_seconds": 20, **changes}
    )


@pytest.fixture
async def embedder(gemini: GeminiServer) -> AsyncIterator[GeminiEmbedder]:
    built = GeminiEmbedder(GEMINI_EMBEDDING_001, settings(gemini), ProcessQuota(16))
    yield built
    await built.aclose()


@pytest.fixture
async def vision(gemini: GeminiServer) -> AsyncIterator[GeminiVision]:
    built = GeminiVision(settings(gemini), ProcessQuota(16))
    yield built
    await built.aclose()


@pytest.fixture
async def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let so many seconds have passed at once, as the loop's clock tells."""
    loop = asyncio.get_running_loop()

    def pass_by(seconds: float) -> None:
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + seconds)

    return pass_by


def vectors(*values: list[float]) -> Reply:
    return Reply(200, {"embeddings": [{"values": numbers} for numbers in values]})


async def embed_all(embedder: GeminiEmbedder, texts: list[str]) -> list[int]:
    return [len(batch) async for batch in embedder.embed_documents(texts)]


async def test_each_text_is_a_request_of_its_own_with_its_task(gemini: GeminiServer, embedder: GeminiEmbedder):
    assert await embed_all(embedder, ["uno", "dos"]) == [2]
    await embedder.embed_query("tres")
    documents, query = gemini.requests
    assert documents.texts == ["uno", "dos"]
    assert {item["taskType"] for item in documents.body["requests"]} == {"RETRIEVAL_DOCUMENT"}
    assert {item["outputDimensionality"] for item in documents.body["requests"]} == {768}
    assert query.body["requests"][0]["taskType"] == "RETRIEVAL_QUERY"


async def test_second_model_is_told_the_task_in_the_text_and_answers_every_text(gemini: GeminiServer):
    embedder = GeminiEmbedder(GEMINI_EMBEDDING_2, settings(gemini), ProcessQuota(16))
    assert await embed_all(embedder, ["uno", "dos"]) == [2]
    await embedder.embed_query("tres")
    await embedder.aclose()
    documents, query = gemini.requests
    assert documents.texts == ["title: none | text: uno", "title: none | text: dos"]
    assert query.texts == ["task: search result | query: tres"]
    assert not any("taskType" in item for request in gemini.requests for item in request.body["requests"])


async def test_calls_are_cut_by_count_and_by_tokens(gemini: GeminiServer, embedder: GeminiEmbedder):
    assert await embed_all(embedder, ["corto"] * (MOST_ITEMS + 1)) == [MOST_ITEMS, 1]
    assert await embed_all(embedder, ["palabra " * 250] * 45) == [29, 16]
    assert len(gemini.calls("batchEmbedContents")) == 4


async def test_being_asked_to_wait_is_obeyed_and_uses_up_no_attempt(gemini: GeminiServer, embedder: GeminiEmbedder):
    gemini.then(*[failure(429, *QUOTA, retry_info="0.01s")] * (ATTEMPTS + 2))
    assert await embed_all(embedder, ["uno", "dos"]) == [2]
    assert [request.texts for request in gemini.requests] == [["uno", "dos"]] * (ATTEMPTS + 3)


@pytest.mark.parametrize(
    "asked",
    [
        {"retry_info": "298s"},
        {"retry_info": "298.5s", "retry_after": "1"},
        {"retry_after": "298"},
        {"retry_after": "1e12"},
        {"retry_info": "1e300s"},
        {"retry_after": format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)},
    ],
)
@pytest.mark.parametrize("status", [(429, "RESOURCE_EXHAUSTED"), (503, "UNAVAILABLE")])
async def test_wait_that_outlasts_the_deadline_is_handed_to_the_caller_at_once(
    gemini: GeminiServer, embedder: GeminiEmbedder, status: tuple[int, str], asked: dict[str, str]
):
    gemini.then(failure(*status, **asked))
    with pytest.raises(UnavailableError) as caught:
        await embedder.embed_query("uno")
    assert caught.value.code == "EMBEDDER_UNAVAILABLE"
    assert 290 < caught.value.retry_after <= 300
    with pytest.raises(UnavailableError):
        await embedder.embed_query("dos")
    assert len(gemini.requests) == 1


@pytest.mark.parametrize("asked", [{}, {"retry_after": "soon"}, {"retry_info": "soon"}, {"retry_info": "-3s"}])
async def test_quota_error_that_names_no_wait_is_waited_out_too(
    gemini: GeminiServer, embedder: GeminiEmbedder, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str]
):
    monkeypatch.setattr(gemini_module, "_FIRST_UNEXPLAINED_WAIT_SECONDS", 30.0)
    gemini.then(failure(429, *QUOTA, **asked))
    with pytest.raises(UnavailableError) as caught:
        await embedder.embed_query("uno")
    assert 20 < caught.value.retry_after <= 30


@pytest.mark.parametrize(
    "fault",
    [
        failure(500, "INTERNAL"),
        failure(502, "BAD_GATEWAY"),
        failure(503, "UNAVAILABLE"),
        failure(504, "DEADLINE_EXCEEDED"),
        Reply(502, "<html>Bad gateway</html>"),
        Reply(200, "<html>Log in</html>"),
        Reply(200, {"embeddings": "none"}),
    ],
)
async def test_passing_fault_is_tried_again_a_few_times(gemini: GeminiServer, embedder: GeminiEmbedder, fault: Reply):
    gemini.then(*[fault] * (ATTEMPTS - 1))
    assert (await embedder.embed_query("uno")).shape == (768,)
    gemini.then(*[fault] * ATTEMPTS)
    with pytest.raises(UnavailableError) as caught:
        await embedder.embed_query("uno")
    assert (caught.value.code, caught.value.retry_after) == ("EMBEDDER_UNAVAILABLE", None)
    assert len(gemini.requests) == 2 * ATTEMPTS


async def test_answer_that_does_not_come_in_time_is_tried_again(gemini: GeminiServer):
    embedder = GeminiEmbedder(GEMINI_EMBEDDING_001, settings(gemini, gemini_timeout_seconds=0.5), ProcessQuota(16))
    gemini.then_hang()
    gemini.then_hang()
    with stamina.set_testing(True, attempts=2, cap=True), pytest.raises(UnavailableError, match="in time"):
        await embedder.embed_query("uno")
    await embedder.aclose()

    async def both_came() -> bool:
        return len(gemini.requests) == 2

    await eventually(both_came)


async def test_deadline_bounds_a_call_with_all_its_attempts(gemini: GeminiServer):
    embedder = GeminiEmbedder(GEMINI_EMBEDDING_001, settings(gemini, gemini_deadline_seconds=0.2), ProcessQuota(16))
    gemini.then_hang()
    with pytest.raises(UnavailableError) as caught:
        await embedder.embed_query("uno")
    await embedder.aclose()
    assert "no answer in time" in str(caught.value)


async def test_server_that_is_not_there_is_unavailable(gemini: GeminiServer):
    with GeminiServer() as gone:
        pass
    embedder = GeminiEmbedder(GEMINI_EMBEDDING_001, settings(gone), ProcessQuota(16))
    with pytest.raises(UnavailableError) as caught:
        await embedder.embed_query("uno")
    await embedder.aclose()
    assert "CAUCE_GEMINI_BASE_URL" in caught.value.remedy


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(vectors([1.0] * 768), id="one vector for all texts"),
        pytest.param(vectors([1.0] * 768, [1.0] * 767), id="a number too few"),
        pytest.param(vectors([1.0] * 768, [1.0] * 3072), id="not cut to size"),
        pytest.param(vectors([1.0] * 768, [0.0] * 768), id="zero"),
        pytest.param(vectors([1.0] * 768, [float("nan")] * 768), id="not a number"),
        pytest.param(vectors([1.0] * 768, []), id="empty"),
        pytest.param(Reply(200, {"embeddings": [{"values": [1.0] * 768}, {}]}), id="missing"),
        pytest.param(Reply(200, {}), id="nothing"),
    ],
)
async def test_unusable_vectors_never_get_past_the_client(
    gemini: GeminiServer, embedder: GeminiEmbedder, answer: Reply
):
    gemini.then(answer)
    with pytest.raises(CallFailedError, match="vector"):
        await embed_all(embedder, ["uno", "dos"])
    assert [request.texts for request in gemini.requests] == [["uno", "dos"], ["prueba"]]


@pytest.mark.parametrize(
    "fault",
    [
        failure(500, "INTERNAL"),
        failure(403, "PERMISSION_DENIED"),
        failure(400, "INVALID_ARGUMENT"),
        Reply(200, "<html>Log in</html>"),
        Reply(200, ""),
        Reply(200, "null"),
        Reply(200, "[1, 2, 3]"),
        Reply(200, "[" * 200_000),
        Reply(200, b"none of gzip", (("Content-Encoding", "gzip"),)),
        Reply(200, {"embeddings": [None]}),
        Reply(200, {"embeddings": []}),
        vectors([float("nan")] * 768),
    ],
)
async def test_provider_that_fails_at_everything_is_left_alone_until_it_answers_the_probe(
    gemini: GeminiServer,
    embedder: GeminiEmbedder,
    fault: Reply,
    later: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limiter, "OUTAGE_BASE_SECONDS", LONGEST_PAUSE_SECONDS)
    gemini.then(*[fault] * 100)
    with pytest.raises(UnavailableError) as caught:
        await embed_all(embedder, ["uno"])
    assert not isinstance(caught.value, CallFailedError)
    assert "fails at everything" in caught.value.message
    assert 0 < caught.value.retry_after <= LONGEST_PAUSE_SECONDS
    sent = len(gemini.requests)
    with pytest.raises(UnavailableError, match="fails at everything"):
        await embed_all(embedder, ["dos"])
    assert len(gemini.requests) == sent

    later(LONGEST_PAUSE_SECONDS)
    with pytest.raises(UnavailableError, match="fails at everything"):
        await embed_all(embedder, ["dos"])
    assert [request.texts for request in gemini.requests[sent:]] == [["prueba"]]
    gemini.forget_script()
    later(LONGEST_PAUSE_SECONDS)
    assert await asyncio.gather(*(embed_all(embedder, [text]) for text in ("dos", "tres"))) == [[1], [1]]
    probe, *others = [request.texts for request in gemini.requests[sent + 1 :]]
    assert (probe, sorted(others)) == (["prueba"], [["dos"], ["tres"]])


async def test_provider_that_refuses_one_text_is_not_out(gemini: GeminiServer, embedder: GeminiEmbedder):
    gemini.then(failure(400, "INVALID_ARGUMENT"))
    with pytest.raises(InvalidInputError):
        await embed_all(embedder, ["uno"])
    gemini.then(*[failure(500, "INTERNAL")] * ATTEMPTS)
    with pytest.raises(CallFailedError, match="500"):
        await embed_all(embedder, ["uno"])
    assert await embed_all(embedder, ["dos"]) == [1]


async def test_call_that_is_asked_to_wait_each_time_while_others_are_answered_has_failed(
    gemini: GeminiServer, embedder: GeminiEmbedder
):
    refusal = failure(429, *QUOTA, retry_info="0.05s")
    gemini.then(*[refusal] * 10)
    with pytest.raises(CallFailedError, match="asked to wait 10 times"):
        await embed_all(embedder, ["uno"])

    gemini.then(*[refusal] * 11)
    with pytest.raises(UnavailableError, match="asks to wait") as caught:
        await embed_all(embedder, ["uno"])
    assert not isinstance(caught.value, CallFailedError)
    assert await embed_all(embedder, ["uno"]) == [1]


async def test_probe_that_is_asked_to_wait_tells_nothing(gemini: GeminiServer, embedder: GeminiEmbedder):
    gemini.then(*[failure(500, "INTERNAL")] * ATTEMPTS, failure(429, *QUOTA, retry_info="0.05s"))
    with pytest.raises(UnavailableError, match="asks to wait") as caught:
        await embed_all(embedder, ["uno"])
    assert not isinstance(caught.value, CallFailedError)
    assert await embed_all(embedder, ["uno"]) == [1]


@pytest.mark.parametrize("status", [200, 500])
async def test_answer_that_is_too_long_for_its_vectors_is_not_read(
    gemini: GeminiServer, embedder: GeminiEmbedder, status: int
):
    gemini.then(Reply(status, b" " * 20_000_000 + b"{}"))
    with pytest.raises(CallFailedError, match="more than 5915200 bytes"):
        await embed_all(embedder, ["uno"])
    assert await embed_all(embedder, ["texto"] * MOST_ITEMS) == [MOST_ITEMS]


async def test_wrong_key_is_not_the_fault_of_the_text(gemini: GeminiServer):
    embedder = GeminiEmbedder(GEMINI_EMBEDDING_001, settings(gemini, gemini_api_key="wrong-key"), ProcessQuota(16))
    with pytest.raises(UnavailableError) as caught:
        await embedder.embed_query("uno")
    await embedder.aclose()
    assert "CAUCE_GEMINI_API_KEY" in caught.value.remedy
    assert "wrong-key" not in str(caught.value)
    assert len(gemini.requests) == 1


@pytest.mark.parametrize("status", [(401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED"), (404, "NOT_FOUND")])
async def test_refused_access_is_not_the_fault_of_the_text(
    gemini: GeminiServer, embedder: GeminiEmbedder, status: tuple[int, str]
):
    gemini.then(failure(*status))
    with pytest.raises(UnavailableError) as caught:
        await embedder.embed_query("uno")
    assert caught.value.remedy
    assert len(gemini.requests) == 1


async def test_rejected_input_is_not_sent_again(gemini: GeminiServer, embedder: GeminiEmbedder):
    gemini.then(failure(400, "INVALID_ARGUMENT", message="no " * 1000))
    with pytest.raises(InvalidInputError) as caught:
        await embedder.embed_query("uno")
    assert caught.value.code == "MODEL_REJECTED_INPUT"
    assert len(caught.value.message) <= 300
    assert len(gemini.requests) == 1


@pytest.mark.parametrize(
    "body", ["slow down", [], {"error": "slow down"}, {"error": {"code": 429, "details": "x"}}, [{"error": {}}]]
)
async def test_quota_error_of_another_form_is_waited_out_too(gemini: GeminiServer, body: Any):
    embedder = GeminiEmbedder(
        GEMINI_EMBEDDING_001, settings(gemini, gemini_longest_pause_seconds=0.05), ProcessQuota(16)
    )
    gemini.then(*[Reply(429, body)] * 5)
    faults: list[UnavailableError] = []
    async with asyncio.timeout(20):
        while True:
            try:
                assert await embed_all(embedder, ["uno"]) == [1]
                break
            except UnavailableError as error:
                faults.append(error)
                await asyncio.sleep(0.05)
    await embedder.aclose()
    assert not any(isinstance(fault, CallFailedError) for fault in faults)


async def test_text_longer_than_the_model_reads_is_refused_and_not_cut(gemini: GeminiServer, embedder: GeminiEmbedder):
    with pytest.raises(InvalidInputError) as caught:
        await embed_all(embedder, ["corto", "palabra " * 1025])
    assert (caught.value.code, caught.value.where) == ("TEXT_TOO_LONG", "text 1")
    assert "2050 tokens" in caught.value.message
    assert "2048" in caught.value.message
    assert gemini.calls("batchEmbedContents") == []


async def test_long_text_that_the_model_reads_whole_is_embedded(gemini: GeminiServer, embedder: GeminiEmbedder):
    assert await embed_all(embedder, ["palabra " * 1000]) == [1]
    assert [request.method for request in gemini.requests] == ["countTokens", "batchEmbedContents"]


async def test_no_more_calls_at_once_than_allowed(gemini: GeminiServer):
    under_way: list[int] = []
    lock = threading.Lock()
    running = 0
    full = threading.Barrier(2)

    def slow(request: Request) -> Reply:
        nonlocal running
        with lock:
            running += 1
            under_way.append(running)
        full.wait(timeout=PATIENCE)
        with lock:
            running -= 1
        return embed(request)

    gemini.then(*[slow] * 6)
    embedder = GeminiEmbedder(GEMINI_EMBEDDING_001, settings(gemini), ProcessQuota(2))
    await asyncio.gather(*(embedder.embed_query(f"texto {number}") for number in range(6)))
    await embedder.aclose()
    assert max(under_way) == 2


async def test_closed_embedder_holds_no_connection(gemini: GeminiServer, embedder: GeminiEmbedder):
    await embedder.embed_query("uno")
    await embedder.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        await embedder.embed_query("dos")


async def test_tokens_and_durations_are_counted_by_model_and_operation(
    gemini: GeminiServer, embedder: GeminiEmbedder, vision: GeminiVision, monkeypatch: pytest.MonkeyPatch
):
    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("cauce")
    monkeypatch.setattr(telemetry, "_tokens", meter.create_counter("cauce.model.tokens"))
    monkeypatch.setattr(telemetry, "_duration", meter.create_histogram("cauce.model.call.duration"))
    gemini.then(failure(500, "INTERNAL"), description("Una bomba."))
    await vision.describe(b"image", "image/png")
    await embedder.embed_query("seis")
    (resource,) = reader.get_metrics_data().resource_metrics
    points = {
        (metric.name, point.attributes["operation"], point.attributes.get("outcome")): point
        for metric in resource.scope_metrics[0].metrics
        for point in metric.data.data_points
    }
    assert points["cauce.model.tokens", "describe_image", None].value == 278
    assert points["cauce.model.tokens", "embed_query", None].value == 2
    assert points["cauce.model.call.duration", "describe_image", "ok"].count == 1
    assert points["cauce.model.call.duration", "describe_image", "ServerError"].count == 1
    assert points["cauce.model.call.duration", "embed_query", "ok"].attributes["provider"] == "gemini"


async def test_image_is_sent_with_the_instruction_to_keep_its_labels(gemini: GeminiServer, vision: GeminiVision):
    gemini.then(description("  Una bomba P-101.\n"))
    assert await vision.describe(b"image", "image/jpeg") == "Una bomba P-101."
    (request,) = gemini.requests
    image, instruction = request.body["contents"][0]["parts"]
    assert request.model == "gemini-3.5-flash"
    assert image["inlineData"] == {"data": "aW1hZ2U=", "mime_type": "image/jpeg"}
    assert "label" in instruction["text"]


@pytest.mark.parametrize("answer", ["NONE", "none.", " NONE\n"])
async def test_image_that_shows_nothing_has_an_empty_description(
    gemini: GeminiServer, vision: GeminiVision, answer: str
):
    gemini.then(description(answer))
    assert await vision.describe(b"image", "image/png") == ""


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (description(None, "SAFETY"), "SAFETY"),
        (description("Una bomba y", "MAX_TOKENS"), "MAX_TOKENS"),
        (description(" "), "an empty answer"),
        (description(None), "an empty answer"),
        (Reply(200, {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}), "PROHIBITED_CONTENT"),
        (Reply(200, {}), "no candidate"),
        (Reply(200, {"candidates": [{"index": 0}]}), "no finish reason"),
    ],
)
async def test_image_without_a_whole_description_says_why(
    gemini: GeminiServer, vision: GeminiVision, reply: Reply, reason: str
):
    gemini.then(reply)
    with pytest.raises(ImageNotDescribedError, match=reason):
        await vision.describe(b"image", "image/png")


async def test_vision_that_is_away_is_told_from_an_image_that_it_fails_at(gemini: GeminiServer, vision: GeminiVision):
    gemini.then(*[failure(500, "INTERNAL")] * ATTEMPTS)
    with pytest.raises(CallFailedError):
        await vision.describe(b"image", "image/png")
    gemini.then(*[failure(500, "INTERNAL")] * (ATTEMPTS + 1))
    with pytest.raises(UnavailableError) as away:
        await vision.describe(b"image", "image/png")
    assert not isinstance(away.value, CallFailedError)
    assert away.value.code == "DESCRIBER_UNAVAILABLE"


async def test_vectors_of_the_first_model_are_scaled_to_unit_length(gemini: GeminiServer, embedder: GeminiEmbedder):
    assert np.linalg.norm(await embedder.embed_query("uno dos tres")) == pytest.approx(1)


async def test_calls_are_cut_to_what_a_minute_allows(gemini: GeminiServer):
    rates = {"gemini-embedding-001": Rates(requests_per_minute=3, tokens_per_minute=1_000)}
    embedder = GeminiEmbedder(GEMINI_EMBEDDING_001, settings(gemini, gemini_quotas=rates), ProcessQuota(1))
    assert await embed_all(embedder, ["corto"] * 7) == [3, 3, 1]
    assert await embed_all(embedder, ["palabra " * 250] * 2) == [1, 1]
    await embedder.aclose()


async def test_waits_count_against_the_deadline_only_where_somebody_waits(gemini: GeminiServer):
    hurried = settings(gemini, gemini_deadline_seconds=0.2, gemini_waits_count=True)
    embedder = GeminiEmbedder(GEMINI_EMBEDDING_001, hurried, ProcessQuota(1))
    gemini.then(*[failure(429, *QUOTA, retry_info="0.1s")] * 20)
    with pytest.raises(UnavailableError):
        await embedder.embed_query("uno")
    await embedder.aclose()
    assert len(gemini.requests) < 5
