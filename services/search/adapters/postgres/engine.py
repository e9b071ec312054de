"""Runs the statement of a search, with another plan where the first one came back with too few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import asyncpg

from services.chassis.kernel.scope import AccessScope
from services.chassis.postgres.faults import DRIVER_FAULTS
from services.chassis.postgres.queries import load_query
from services.search.adapters.postgres.legs import Plan, Size
from services.search.adapters.postgres.statements import assemble, fragment, fusion_fragments, fusion_values
from services.search.application.ports import Question
from services.search.domain.criteria import FileChunkSearchCriteria, ResourceSearchCriteria
from services.search.domain.fusion import Fusion, is_code
from services.search.domain.results import Legs, Strategy

EF_SEARCH_DEFAULT = 300
EF_SEARCH_MAX = 1_000  # pgvector's


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far searches go.

    Attributes:
        ef_search: what the pool's sessions are set to.
        exact_up_to: rows are compared one by one while no more than this pass the filter and the scope: complete, where
            an index scan would walk over others' rows. 2,000 take about 15 ms.
        candidates: how many each leg brings to a fusion.
        timeout_seconds: for a connection, and for a statement.
    """

    ef_search: int
    exact_up_to: int
    timeout_seconds: float
    candidates: int = 50


class SearchRun:
    """One search over chunks or resources, on one connection.

    Args:
        connection: whose session has the settings that the statements need.
        kind: ``chunks`` or ``resources``, the ending of the templates' names.
        lexical_index: the index of words.
        bounds: how far it goes.
        scope: whose rows are looked at.
        question: what is looked for.
        criteria: how many rows, and from which score on.
        fragments: conditions, by name.
        values: what fragments and templates bind besides.
    """

    def __init__(
        self,
        connection: asyncpg.Connection,
        kind: str,
        lexical_index: str,
        bounds: Bounds,
        *,
        scope: AccessScope,
        question: Question,
        criteria: FileChunkSearchCriteria | ResourceSearchCriteria,
        fragments: Mapping[str, str],
        values: Mapping[str, object],
    ) -> None:
        self._connection = connection
        self._kind = kind
        self._ef_search = bounds.ef_search
        self._fragments = {
            **fragments,
            **_written(space=question.space_id, rows=criteria.top_n, candidates=bounds.candidates),
            "passes": "{min_score}::float8 IS NULL OR 1 - distance >= {min_score}::float8",
            "word_query": "to_bm25query({forms_asked}::text, {lexical_index}::text)",
        }
        words, forms = cast(Sequence[str | None], values["words"]), cast(Sequence[str], values["forms"])
        self._values = {
            **values,
            "codes": [form for form in forms if is_code(form)],
            "codes_apart": [form for word, form in zip(words, forms, strict=True) if word is None and is_code(form)],
            "lexical_index": lexical_index,
            "tenant": scope.tenant_id,
            "min_score": criteria.min_score,
            "exact_up_to": bounds.exact_up_to,
        }
        self._timeout = bounds.timeout_seconds
        self.is_cut_short = False
        """Whether the time ran out for a better plan, which another run may have."""

    async def size(self) -> Size:
        """How much passes the filter."""
        (row,) = await self._fetch(*assemble(f"count_{self._kind}", self._fragments, self._values))
        return Size(**row)

    async def find(
        self, question: Question, plan: Plan, size: Size, fusion: Fusion, top_n: int
    ) -> tuple[list[asyncpg.Record], Legs, Plan]:
        """The rows, best first, what the legs did, and the plan that they came by.

        When the time for a better plan runs out, they are those that came before, and say what they may lack.
        """
        lexical_fault: str | None = None
        found: tuple[list[asyncpg.Record], Legs, Plan] | None = None
        while True:
            try:
                rows = await self._run(question, plan, fusion)
            except TimeoutError:
                if found is None:
                    raise
                self.is_cut_short = True
                return found
            except asyncpg.PostgresError as error:
                if plan.dense is None or plan.lexical is None or isinstance(error, DRIVER_FAULTS):
                    raise
                # Whose fault it was shows when the semantic leg runs alone.
                lexical_fault = f"{type(error).__name__}: {error}"
                plan = replace(plan, lexical=None)
                continue
            found = rows, plan.legs(rows[0], size, lexical_fault), plan
            better = plan.improved(rows[0], size, top_n)
            if better is None:
                return found
            plan = better

    async def _run(self, question: Question, plan: Plan, fusion: Fusion) -> list[asyncpg.Record]:
        statement, arguments = self.statement(question, plan, fusion)
        # One candidate more than rows tells the sort whether the last ones are equal.
        if plan.dense is not Strategy.HNSW or plan.dense_limit < self._ef_search:
            return await self._fetch(statement, arguments)
        async with self._connection.transaction():
            await self._connection.execute(f"SET LOCAL hnsw.ef_search = {min(plan.dense_limit + 1, EF_SEARCH_MAX):d}")
            return await self._fetch(statement, arguments)

    def statement(self, question: Question, plan: Plan, fusion: Fusion) -> tuple[str, list[Any]]:
        """The statement of a plan and its arguments."""
        dense = fragment(f"dense_{plan.dense}_{self._kind}" if plan.dense else f"no_dense_{self._kind}")
        limits = _written(window=plan.window, dense_limit=plan.dense_limit, lexical_limit=plan.lexical_limit)
        fragments = {**self._fragments, **limits, "dense": dense}
        if plan.lexical is not None:
            fragments |= fusion_fragments(fusion, self._kind, dense=plan.dense is not None)
            fragments["lexical_read"] = fragment(f"lexical_{plan.lexical}_{self._kind}")
        values = {**self._values, **fusion_values(fusion), "vector": question.vector}
        return assemble(self._kind if plan.lexical else f"semantic_{self._kind}", fragments, values)

    async def _fetch(self, statement: str, arguments: list[Any]) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await self._connection.fetch(statement, *arguments, timeout=self._timeout)
        return rows


def _written(**numbers: int) -> dict[str, str]:
    """Numbers to stand in the text: a plan that the server keeps for later questions goes by their size, or by them
    to the index of one space."""
    return {name: f"{number:d}" for name, number in numbers.items()}


async def fetch_rows(
    connection: asyncpg.Connection, query: str, bounds: Bounds, *arguments: Any
) -> list[asyncpg.Record]:
    """The rows of one of the search service's own queries."""
    rows: list[asyncpg.Record] = await connection.fetch(
        load_query("services.search", query), *arguments, timeout=bounds.timeout_seconds
    )
    return rows
