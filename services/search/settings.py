"""What the search service reads from the environment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from services.chassis.settings import GeminiSettings, HttpSettings, LanguageModelSettings, ResourceTypeSettings


class SearchSettings(HttpSettings, ResourceTypeSettings):
    """Settings of the search service, each as ``CAUCE_<NAME>``.

    Attributes:
        search_database_url: ``postgresql://cauce_search@host:port/database``.
        search_pool_size: the most database connections; searches beyond it wait.
        search_ef_search: candidates that an index scan keeps; more find more of the true neighbours and take longer.
        search_exact_up_to: chunks of a tenant that are compared one by one instead; in a large table more than this.
        search_mode: what a search goes by that does not say: ``hybrid`` or ``semantic``.
        search_candidates: how many each leg of a hybrid search brings to the fusion, at least.
        search_fusion: ``convex`` adds normalised scores, ``ranks`` adds reciprocal ranks.
        search_dense_weight: the share of the meaning in the fusion, 0 to 1.
        search_neighbour_weight: what the passages before and after a short one count, if they are short, too.
        search_rank_constant: of reciprocal ranks.
        search_timeout_seconds: for a connection, and for a statement.
        search_cached_queries: query vectors kept in memory, 3 kB each.
        search_stored_queries: query vectors kept in the database, 4 kB each.
        search_stored_queries_days: a stored one is forgotten when its question was not asked for so long.
        search_cached_characters: of results kept in memory, of passages and of resources each; 0 keeps none.
        max_requests: searches under way at once, those that wait for a connection included; more are answered 503.
        search_space_poll_seconds: how soon a change of the active embedding space is seen.
    """

    search_database_url: str
    search_pool_size: int = Field(default=10, ge=1, le=500)
    search_ef_search: int = Field(default=300, ge=10, le=1_000)
    search_exact_up_to: int = Field(default=2_000, ge=0)
    search_mode: Literal["hybrid", "semantic"] = "hybrid"
    search_candidates: int = Field(default=50, ge=10, le=250)
    search_fusion: Literal["convex", "ranks"] = "convex"
    search_dense_weight: float = Field(default=0.45, ge=0, le=1)
    search_neighbour_weight: float = Field(default=0.25, ge=0, le=1)
    search_rank_constant: int = Field(default=60, ge=1)
    search_timeout_seconds: float = Field(default=10, gt=0)
    search_cached_queries: int = Field(default=10_000, ge=1)
    search_stored_queries: int = Field(default=50_000, ge=1)
    search_stored_queries_days: int = Field(default=30, ge=1, le=3_650)
    search_cached_characters: int = Field(default=20_000_000, ge=0)
    search_space_poll_seconds: float = Field(default=2, gt=0)
    max_requests: int = Field(default=128, ge=1)


__all__ = ["GeminiSettings", "LanguageModelSettings", "SearchSettings"]
