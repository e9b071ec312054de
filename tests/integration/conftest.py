"""What the tests of the search index have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from services.chassis.postgres.pool import create_pool
from services.search.adapters.postgres.file_chunks import server_settings
from tests.support.postgres import Database
from tests.support.search import Index, open_index


@pytest.fixture
async def tables(database: Database) -> AsyncIterator[Index]:
    """The tables of the embeddings service, filled by the test."""
    async with open_index(database) as index:
        yield index


@pytest.fixture
async def search_pool(database: Database) -> AsyncIterator[asyncpg.Pool]:
    """Connections as the search service has them."""
    opened = await create_pool(
        database.search_url, application_name="test", server_settings=server_settings(), reset_on_release=False
    )
    async with opened:
        yield opened
