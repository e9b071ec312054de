"""The way from a question to results, the same for every index: the question, what a model makes of it, one order.

What a model said adds lists of results and a last order. The list of the first query is always there and weighs as
much as all the others together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from services.chassis.kernel.errors import InvalidInputError, UnavailableError
from services.chassis.kernel.scope import AccessScope
from services.search.application.paging import Found, Match, Page, read_page
from services.search.application.ports import Question
from services.search.application.questions import Questions, ReadyQuestion
from services.search.application.techniques import AskModel, failed, skipped
from services.search.domain.criteria import TOP_N_MAX, FileChunkSearchCriteria, ResourceSearchCriteria
from services.search.domain.cursor import digest
from services.search.domain.fusion import Fusion, fuse_lists
from services.search.domain.results import Executed, Total
from services.search.domain.techniques import ExecutedQuery, QueryKind, TechniqueName, TechniqueReport

Criteria = TypeVar("Criteria", FileChunkSearchCriteria, ResourceSearchCriteria)
Criteria_contra = TypeVar("Criteria_contra", FileChunkSearchCriteria, ResourceSearchCriteria, contravariant=True)

_DEPTHS = (50, 200, TOP_N_MAX)
"""How many results of each query are fused: the same for every small ``top_n``, so that asking for more brings up none
that was missing."""

_LEAST_NORM = 0.1


class Index(Protocol[Criteria_contra, Match]):
    """What ``FileChunkIndex`` and ``ResourceIndex`` have in common."""

    async def search(
        self, scope: AccessScope, question: Question, criteria: Criteria_contra, fusion: Fusion
    ) -> Found[Match]:
        """What the question's legs find, best first."""

    async def cosines(
        self, scope: AccessScope, question: Question, matches: Sequence[Match]
    ) -> Mapping[tuple[str, int], float]:
        """The cosine of the question's vector with each match, by its key; none for one that is gone."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A text to search for, and the question that it makes."""

    query: ExecutedQuery
    question: Question


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question, and what the language model made of it: it can be looked up in several indexes."""

    ready: ReadyQuestion
    ask: AskModel
    asked: tuple[_Asked, ...]
    reports: tuple[TechniqueReport, ...]


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Answers questions by an index."""

    questions: Questions
    ask: AskModel
    fusion: Fusion

    async def prepare(self, scope: AccessScope, criteria: FileChunkSearchCriteria | ResourceSearchCriteria) -> Prepared:
        """Embed the question, and ask the language model for its rewritten form, other wordings and a passage.

        Raises:
            UnavailableError: no space is active, or a leg that the mode cannot do without cannot run now.
        """
        ready = await self.questions.prepare(scope, criteria.query_text, criteria.mode, criteria.min_score)
        ask = self.ask.begun()
        asked, rewriting = await self._rewritten(scope, criteria, ready, ask)
        # Asked for at the same time.
        (variants, multi_query), (hypothetical, hyde) = await asyncio.gather(
            self._variants(scope, criteria.techniques.multi_query, ready, ask, asked),
            self._hypothetical(scope, criteria.techniques.hyde, ready, ask, asked[0]),
        )
        reports = tuple(report for report in (rewriting, multi_query, hyde) if report is not None)
        return Prepared(ready, ask, (*asked, *variants, *hypothetical), reports)

    async def __call__(
        self, scope: AccessScope, criteria: Criteria, index: Index[Criteria, Match], prepared: Prepared | None = None
    ) -> tuple[tuple[Match, ...], Total, str | None, Executed]:
        """The results, best first, how many there are, what to go on after, and what was executed.

        Args:
            scope: the caller's.
            criteria: what is asked for.
            index: where to look.
            prepared: the question, when it is looked up elsewhere as well; its reports are the caller's to tell.

        Raises:
            InvalidInputError: ``CURSOR_MISMATCH``.
            ConflictError: ``CURSOR_EXPIRED``.
            UnavailableError: no space is active, a leg that the mode cannot do without cannot run now, or
                ``PAGE_UNAVAILABLE``: the leg that failed may find more, and the other does not.
        """
        wanted = criteria.techniques
        reports: tuple[TechniqueReport, ...] = ()
        if prepared is None:
            prepared = await self.prepare(scope, criteria)
            reports = prepared.reports
        ready, asked = prepared.ready, prepared.asked
        if not wanted:
            page = await self._page(scope, criteria, ready, index)
            executed = ready.executed(page.legs, self.fusion, cached=page.cached)
            return page.matches, ready.total(page.total), page.next, executed

        depth = max(criteria.top_n, wanted.rerank or 0)
        if len(asked) > 1:
            depth = next(depth_ for depth_ in _DEPTHS if depth_ >= depth)
        found = await index.search(scope, asked[0].question, replace(criteria, top_n=depth), self.fusion)
        matches, total = found.matches, ready.total(found.total)
        if len(asked) > 1:
            # The threshold is on the cosine with the first query, which the searches for the others do not compute.
            wide = replace(criteria, top_n=depth, min_score=None)
            lists = [matches]
            for each in asked[1:]:
                lists.append((await index.search(scope, each.question, wide, self.fusion)).matches)
            matches = await self._fused(scope, index, asked[0].question, criteria.min_score, lists)
            if asked[0].question.vector is None:
                total = Total(max(total.count, len(matches)), exact=False, reason="of the first query")
        if wanted.rerank is not None:
            matches, reranking = await self._reranked(scope, prepared.ask, asked[0].query, matches, wanted.rerank)
            reports += (reranking,)
        queries = tuple(each.query for each in asked)
        executed = ready.executed(found.legs, self.fusion, queries, reports)
        return matches[: criteria.top_n], total, None, executed

    async def _page(
        self, scope: AccessScope, criteria: Criteria, ready: ReadyQuestion, index: Index[Criteria, Match]
    ) -> Page[Match]:
        """The answer to the question as it was asked, from where the one before ended."""
        asked = replace(criteria, after=None)

        async def find(top_n: int) -> Found[Match]:
            return await index.search(scope, ready.question, replace(asked, top_n=top_n), self.fusion)

        return await read_page(
            find,
            criteria.top_n,
            criteria.after,
            asked=digest(scope, asked, ready.mode, self.fusion),
            space=digest(ready.space),
            fault=ready.semantic_fault,
        )

    async def _rewritten(
        self,
        scope: AccessScope,
        criteria: FileChunkSearchCriteria | ResourceSearchCriteria,
        ready: ReadyQuestion,
        ask: AskModel,
    ) -> tuple[list[_Asked], TechniqueReport | None]:
        """The question, after its rewritten form if there is one."""
        asked = [_Asked(ExecutedQuery(QueryKind.QUESTION, criteria.query_text), ready.question)]
        if criteria.techniques.history is None:
            return asked, None
        text, report = await ask.rewrite(scope, criteria.query_text, criteria.techniques.history)
        if text is not None and text != criteria.query_text:
            try:
                question = await self.questions.like(scope, ready, text)
                asked.insert(0, _Asked(ExecutedQuery(QueryKind.REWRITTEN, text), question))
            except (UnavailableError, InvalidInputError) as fault:
                report = failed(report, str(fault))
        return asked, report

    async def _variants(
        self, scope: AccessScope, count: int | None, ready: ReadyQuestion, ask: AskModel, asked: list[_Asked]
    ) -> tuple[list[_Asked], TechniqueReport | None]:
        if count is None:
            return [], None
        known = [each.query.text for each in asked]
        texts, report = await ask.variants(scope, known[0], count, known=known)
        try:
            questions = await asyncio.gather(*(self.questions.like(scope, ready, text) for text in texts or ()))
        except (UnavailableError, InvalidInputError) as fault:
            return [], failed(report, str(fault))
        queries = [ExecutedQuery(QueryKind.VARIANT, text) for text in texts or ()]
        return [_Asked(*pair) for pair in zip(queries, questions, strict=True)], report

    async def _hypothetical(
        self, scope: AccessScope, wanted: bool, ready: ReadyQuestion, ask: AskModel, first: _Asked
    ) -> tuple[list[_Asked], TechniqueReport | None]:
        if not wanted:
            return [], None
        vector = first.question.vector
        if vector is None:
            return [], skipped(TechniqueName.HYDE, "no vector takes part in this search")
        text, report = await ask.hypothetical(scope, first.query.text)
        if text is None:
            return [], report
        try:
            mixed = vector + await self.questions.embed_passage(ready, text)
        except (UnavailableError, InvalidInputError) as fault:
            return [], failed(report, str(fault))
        norm = float(np.linalg.norm(mixed))
        if norm < _LEAST_NORM:
            return [], failed(report, "the passage says the opposite of the question in every respect")
        question = Question(ready.question.space_id, mixed / np.float32(norm))
        return [_Asked(ExecutedQuery(QueryKind.HYPOTHETICAL, text), question)], report

    async def _fused(
        self,
        scope: AccessScope,
        index: Index[Criteria, Match],
        first: Question,
        min_score: float | None,
        lists: Sequence[Sequence[Match]],
    ) -> tuple[Match, ...]:
        """One list of all, each with the scores and ranks that the first query gives it."""
        matches = {match.key: match for match in lists[0]}
        others = {match.key: match for some in lists[1:] for match in some if match.key not in matches}
        scores: Mapping[tuple[str, int], float] = {}
        if first.vector is not None and others:
            scores = await index.cosines(scope, first, list(others.values()))
        for key, match in others.items():
            score = scores.get(key)
            if first.vector is None or (score is not None and (min_score is None or score >= min_score)):
                matches[key] = replace(
                    match, score=score, bm25_score=None, dense_rank=None, lexical_rank=None, fused_score=None
                )
        fused = fuse_lists([[match.key for match in some] for some in lists])
        return tuple(replace(matches[key], queries_score=score) for key, score in fused.items() if key in matches)

    async def _reranked(
        self, scope: AccessScope, ask: AskModel, first: ExecutedQuery, matches: tuple[Match, ...], most: int
    ) -> tuple[tuple[Match, ...], TechniqueReport]:
        """The same results, the first of them in the model's order."""
        order, report = await ask.rank(scope, first.text, [match.passage for match in matches[:most]])
        ranked = tuple(replace(matches[place], rank_before_rerank=place + 1) for place in order or ())
        return ranked + matches[len(ranked) :], report
