"""A question made ready for the index: what its mode needs of it, and what could not be had."""

from __future__ import annotations

from dataclasses import dataclass, replace

from services.chassis.kernel.errors import UnavailableError
from services.chassis.kernel.scope import AccessScope
from services.chassis.models.space import Vector
from services.search.application.active_space import ActiveSpace
from services.search.application.ports import QueryEmbedder, Question
from services.search.application.query_vectors import QueryVectors
from services.search.domain.criteria import SearchMode
from services.search.domain.fusion import Fusion
from services.search.domain.results import Executed, Leg, Legs, LegStatus, Total
from services.search.domain.techniques import ExecutedQuery, QueryKind, TechniqueReport


@dataclass(frozen=True, slots=True)
class ReadyQuestion:
    """A question with its mode and the legs that cannot run."""

    text: str
    question: Question
    mode: SearchMode
    space: str
    vector_cached: bool
    faults: Legs

    @property
    def semantic_fault(self) -> str | None:
        """Why the meaning is not looked for although the mode asks for it."""
        return None if self.faults.semantic is None else self.faults.semantic.reason

    def total(self, found: Total) -> Total:
        """How many match, from how many the legs that ran found."""
        if self.semantic_fault is None:
            return found
        return Total(found.count, exact=False, reason="of those with a word of the question: the semantic leg failed")

    def executed(
        self,
        legs: Legs,
        fusion: Fusion,
        queries: tuple[ExecutedQuery, ...] = (),
        techniques: tuple[TechniqueReport, ...] = (),
        *,
        cached: bool = False,
    ) -> Executed:
        """What was done, from what the index did or, when its answer was known, had done.

        ``queries`` where they are others than the question alone.
        """
        legs = Legs(legs.semantic or self.faults.semantic, legs.lexical or self.faults.lexical)
        both = all(leg is not None and leg.status is LegStatus.RAN for leg in (legs.semantic, legs.lexical))
        strategy = legs.semantic.strategy if legs.semantic is not None else None
        return Executed(
            self.mode,
            self.space,
            strategy,
            self.vector_cached,
            cached,
            legs,
            fusion if both else None,
            queries or (ExecutedQuery(QueryKind.QUESTION, self.text),),
            techniques,
        )


@dataclass(frozen=True, slots=True)
class Questions:
    """Prepares questions. A hybrid search goes on with one leg when the other cannot run, and says so."""

    active_space: ActiveSpace
    query_vectors: QueryVectors
    default_mode: SearchMode

    async def prepare(
        self, scope: AccessScope, text: str, mode: SearchMode | None, min_score: float | None
    ) -> ReadyQuestion:
        """Embed the question where its mode needs that.

        Raises:
            UnavailableError: no space is active; ``LEXICAL_UNAVAILABLE`` for a lexical search where there is no index
                of words; or the question cannot be embedded now, and either its mode or its threshold needs that.
        """
        mode = mode or self.default_mode
        recorded = self.active_space.require_recorded()
        name = recorded.space.name
        if mode is SearchMode.LEXICAL:
            if not recorded.lexical:
                raise _lexical_unavailable()
            return ReadyQuestion(text, Question(recorded.space_id, None, text), mode, name, False, Legs())
        words = text if mode is SearchMode.HYBRID and recorded.lexical else None
        lexical_fault = None
        if mode is SearchMode.HYBRID and words is None:
            lexical_fault = Leg(LegStatus.UNAVAILABLE, complete=False, reason=str(_lexical_unavailable()))
        try:
            space = self.active_space.require()
            vector, cached = await self.query_vectors.embed(scope, space.embedder, text)
        except UnavailableError as fault:
            # A space that cannot be served is not searched at all, and a threshold needs the cosine.
            if words is None or min_score is not None or fault.code == "SPACE_MISMATCH":
                raise
            semantic_fault = Leg(LegStatus.FAILED, complete=False, reason=str(fault))
            return ReadyQuestion(
                text, Question(recorded.space_id, None, words), mode, name, False, Legs(semantic=semantic_fault)
            )
        return ReadyQuestion(
            text,
            Question(space.space_id, vector, words),
            mode,
            space.embedder.space.name,
            cached,
            Legs(lexical=lexical_fault),
        )

    async def like(self, scope: AccessScope, ready: ReadyQuestion, text: str) -> Question:
        """Another text for the legs that the question has. Raises UnavailableError when it cannot be embedded now."""
        vector = None
        if ready.question.vector is not None:
            vector, _ = await self.query_vectors.embed(scope, self._embedder(ready), text)
        return replace(ready.question, vector=vector, text=text if ready.question.text is not None else None)

    async def embed_passage(self, ready: ReadyQuestion, text: str) -> Vector:
        """The vector of a passage in the question's space. Raises UnavailableError when it cannot be had now."""
        return await self.query_vectors.embed_passage(self._embedder(ready), text)

    def _embedder(self, ready: ReadyQuestion) -> QueryEmbedder:
        space = self.active_space.require()
        if space.space_id != ready.question.space_id:
            raise UnavailableError("SPACE_MISMATCH", "the embedding space changed during this search")
        return space.embedder


def _lexical_unavailable() -> UnavailableError:
    return UnavailableError(
        "LEXICAL_UNAVAILABLE",
        "there is no index of words that could be relied on",
        remedy="install and preload pg_textsearch and migrate; after a restart of the database it takes a moment",
    )
