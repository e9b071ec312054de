"""The record of embedding spaces: which one new vectors belong to."""

from __future__ import annotations

import asyncpg

from services.chassis.kernel.errors import ConfigurationError
from services.chassis.models.registry import check_space
from services.chassis.models.space import EmbeddingSpace
from services.chassis.postgres.queries import load_query

_PACKAGE = "services.embeddings"


async def join_space(pool: asyncpg.Pool, space: EmbeddingSpace) -> int:
    """Return the id of the active space, which must be the configured one; the first to start makes it active.

    Raises:
        ConfigurationError: ``SPACE_MISMATCH`` when the index is in another space, or another version of this one.
    """
    await pool.execute(
        load_query(_PACKAGE, "register_space"),
        space.name,
        space.provider,
        space.model,
        space.native_dimensions,
        space.convention,
    )
    row = dict(await pool.fetchrow(load_query(_PACKAGE, "find_active_space")))
    space_id: int = row.pop("id")
    active = EmbeddingSpace(**row)
    if active.name != space.name:
        raise ConfigurationError(
            "SPACE_MISMATCH",
            f"the index is in the embedding space {active.name!r}, this service is configured for {space.name!r}",
            where="CAUCE_EMBEDDING_SPACE",
            remedy=f"set CAUCE_EMBEDDING_SPACE={active.name}, or start on an empty database",
        )
    check_space(active)
    return space_id
