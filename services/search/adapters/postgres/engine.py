"""Runs the statement of a search, with another plan where the first one came back with too few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import asyncpg

from services.chassis.postgres.faults import DRIVER_FAULTS
from services.search.adapters.postgres.legs import Plan, Size
from services.search.adapters.postgres.statements import assemble, fragment, fusion_fragments, fusion_values
from services.search.application.ports import Question
from services.search.domain.fusion import Fusion
from services.search.domain.results import Legs, Strategy

EF_SEARCH_MAX = 1_000  # pgvector's


class SearchRun:
    """One search over chunks or resources, on one connection.

    Args:
        connection: whose session has the settings that the statements need.
        kind: ``chunks`` or ``resources``, the ending of the templates' names.
        ef_search: what the session is set to.
        lexical_index: the index of words.
        fragments: conditions, by name.
        values: what fragments and templates bind, with ``tenant``.
        timeout_seconds: for a statement.
    """

    def __init__(
        self,
        connection: asyncpg.Connection,
        kind: str,
        *,
        ef_search: int,
        lexical_index: str,
        fragments: Mapping[str, str],
        values: Mapping[str, object],
        timeout_seconds: float,
    ) -> None:
        self._connection = connection
        self._kind = kind
        self._ef_search = ef_search
        self._fragments = {
            **fragments,
            "passes": "{min_score}::float8 IS NULL OR 1 - distance >= {min_score}::float8",
            "word_query": "to_bm25query({forms_asked}::text, {lexical_index}::text)",
        }
        self._values = {**values, "lexical_index": lexical_index, "table": lexical_index.removesuffix("_lexical")}
        self._timeout = timeout_seconds

    async def size(self) -> Size:
        """How much passes the filter."""
        (row,) = await self._fetch(*assemble(f"count_{self._kind}", self._fragments, self._values))
        return Size(**row)

    async def find(
        self, question: Question, plan: Plan, size: Size, fusion: Fusion, top_n: int
    ) -> tuple[list[asyncpg.Record], Legs, Plan]:
        """The rows, best first, what the legs did, and the plan that they came by."""
        lexical_fault: str | None = None
        while True:
            try:
                rows = await self._run(question, plan, fusion)
            except asyncpg.PostgresError as error:
                if plan.dense is None or plan.lexical is None or isinstance(error, DRIVER_FAULTS):
                    raise
                # Whose fault it was shows when the semantic leg runs alone.
                lexical_fault = f"{type(error).__name__}: {error}"
                plan = replace(plan, lexical=None)
                continue
            better = plan.improved(rows[0], size, top_n)
            if better is None:
                return rows, plan.legs(rows[0], top_n, lexical_fault), plan
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
        fragments = {**self._fragments, "dense": dense}
        if plan.lexical is not None:
            fragments |= fusion_fragments(fusion, dense=plan.dense is not None)
            fragments["lexical_read"] = fragment(f"lexical_{plan.lexical}_{self._kind}")
        values = {
            **self._values,
            **fusion_values(fusion),
            "vector": question.vector,
            "window": plan.window,
            "dense_limit": plan.dense_limit,
            "lexical_limit": plan.lexical_limit,
        }
        return assemble(self._kind if plan.lexical else f"semantic_{self._kind}", fragments, values)

    async def _fetch(self, statement: str, arguments: list[Any]) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await self._connection.fetch(statement, *arguments, timeout=self._timeout)
        return rows
