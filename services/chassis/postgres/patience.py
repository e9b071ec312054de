"""What has to be done before a process can work is done as soon as the database is there, and migrated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from services.chassis.observability.logs import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY, schema_missing

RETRY_SECONDS = 1.0

T = TypeVar("T")

_log = get_logger(__name__)


class Patience:
    """Waits for the database behind a pool, and says what it waits for.

    Attributes:
        fault: why the process cannot work yet; of no meaning once it can.
    """

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.fault = "the database is waited for"

    async def once_database_answers(self, action: Callable[[], Awaitable[T]]) -> T:
        """What the action returns, tried again while the database is away or without this release's schema.

        Any other fault comes out at once.
        """
        while True:
            try:
                return await action()
            except DATABASE_AWAY as error:
                self.fault = "the database is waited for"
                said = f"{type(error).__name__}: {error}"
            except asyncpg.PostgresError as error:
                missing = schema_missing(error)
                if missing is None:
                    raise
                # Connections made before the migration do not know its types.
                await self._pool.expire_connections()
                self.fault = said = str(missing)
            _log.warning("waiting_for_database", error=said)
            await asyncio.sleep(RETRY_SECONDS)
