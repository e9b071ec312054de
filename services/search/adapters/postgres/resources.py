"""The resources of every type, by pgvector and by BM25. Every statement names the tenant; vectors are of one space."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import asyncpg
from opentelemetry import trace

from services.chassis.kernel.scope import AccessScope
from services.search.adapters.postgres.engine import Bounds, SearchRun, fetch_rows
from services.search.adapters.postgres.legs import make_plan
from services.search.adapters.postgres.result_lists import CHARACTERS_DEFAULT, ResultLists, list_key, read_version
from services.search.adapters.postgres.statements import resource_filter
from services.search.application.ports import Question
from services.search.domain.criteria import ResourceKey, ResourceSearchCriteria
from services.search.domain.fusion import Fusion
from services.search.domain.results import FoundResources, ResourceMatch, StoredResource

LEXICAL_INDEX = "module_embeddings_resource_lexemes_lexical"

_tracer = trace.get_tracer("cauce")


class PostgresResourceIndex:
    """Implements ``ResourceIndex`` over the unified view.

    Args:
        pool: with the session settings of ``PostgresFileChunkIndex``.
        known_types: what "all types" means.
        bounds: ``ef_search`` counts for each type's index.
        cached_characters: of the results that are kept in memory.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        known_types: Collection[str],
        bounds: Bounds,
        *,
        cached_characters: int = CHARACTERS_DEFAULT,
    ) -> None:
        self._pool = pool
        self._known_types = sorted(known_types)
        self._bounds = bounds
        self._lists: ResultLists[FoundResources] = ResultLists(cached_characters)

    async def search(
        self, scope: AccessScope, question: Question, criteria: ResourceSearchCriteria, fusion: Fusion
    ) -> FoundResources:
        """The resources that the question's legs find, best first."""
        with _tracer.start_as_current_span("find resources") as span:
            async with self._pool.acquire(timeout=self._bounds.timeout_seconds) as connection:
                version, words = await read_version(connection, scope, question, self._bounds.timeout_seconds)
                list_of = list_key(scope, question, criteria, fusion)
                known = self._lists.find(list_of, version)
                if known is not None:
                    return replace(known, cached=True)
                fragments, values = resource_filter(criteria.filter)
                run = SearchRun(
                    connection,
                    "resources",
                    LEXICAL_INDEX,
                    self._bounds,
                    scope=scope,
                    question=question,
                    criteria=criteria,
                    fragments=fragments,
                    values={**values, **words, "types": list(criteria.entity_types) or self._known_types},
                )
                size = await run.size()
                plan = make_plan(
                    question,
                    size,
                    top_n=criteria.top_n,
                    candidates=self._bounds.candidates,
                    filtered=bool(criteria.entity_types or criteria.filter),
                )
                records, legs, used = await run.find(question, plan, size, fusion, criteria.top_n)
            span.set_attributes({"strategy.dense": str(used.dense), "strategy.lexical": str(used.lexical)})
            matches = tuple(_match(row) for row in records if row["entity_id"] is not None)
            total = used.total(records[0], size, criteria.min_score, len(matches))
            found = FoundResources(matches, legs, total)
            if not run.is_cut_short:
                self._lists.keep(list_of, version, found, sum(len(match.embedding_text) for match in matches))
        return found

    async def cosines(
        self, scope: AccessScope, question: Question, matches: Sequence[ResourceMatch]
    ) -> Mapping[tuple[str, int], float]:
        """The cosine of the question's vector with each of the resources, by its key."""
        types, ids = [match.entity_type for match in matches], [match.entity_id for match in matches]
        async with self._pool.acquire(timeout=self._bounds.timeout_seconds) as connection:
            rows = await fetch_rows(
                connection,
                "resource_cosines",
                self._bounds,
                scope.tenant_id,
                question.space_id,
                question.vector,
                types,
                ids,
            )
        return {(row["entity_type"], row["entity_id"]): row["score"] for row in rows}

    async def find(self, scope: AccessScope, key: ResourceKey) -> StoredResource | None:
        """What the index holds of a resource, None when it has none within the scope."""
        async with self._pool.acquire(timeout=self._bounds.timeout_seconds) as connection:
            rows = await fetch_rows(
                connection, "stored_resource", self._bounds, key.entity_type, key.entity_id, scope.tenant_id
            )
        return StoredResource(**rows[0]) if rows else None


def _match(row: asyncpg.Record) -> ResourceMatch:
    return ResourceMatch(
        entity_type=row["entity_type"],
        entity_id=row["entity_id"],
        name=row["name"],
        embedding_text=row["embedding_text"],
        score=row["score"],
        bm25_score=row["bm25_score"],
        dense_rank=row["dense_rank"],
        lexical_rank=row["lexical_rank"],
        fused_score=row["fused_score"],
        updated_at=row["updated_at"],
    )
