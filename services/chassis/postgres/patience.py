"""What has to be done before a process can work is done as soon as the database is there, and migrated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from services.chassis.kernel.errors import UnavailableError
from services.chassis.observability.logs import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY, schema_missing
from services.chassis.postgres.migrations import require_migrated
from services.chassis.stopping import pause

RETRY_SECONDS = 1.0

T = TypeVar("T")

_log = get_logger(__name__)


class Patience:
    """Waits for the database behind a pool, and says what it waits for.

    Attributes:
        error: why the process cannot work yet; of no meaning once it can.
    """

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.error = _away()

    async def once_database_answers(self, action: Callable[[], Awaitable[T]]) -> T:
        """What the action returns, once the database is there with all migrations of this release.

        It is tried again while it meets an UnavailableError or that the database went away. Others come out at once.
        """
        self.error = _away()
        while True:
            try:
                await require_migrated(self._pool)
                result = await action()
                # Connections made before the migration do not know its types.
                await self._pool.expire_connections()
                return result
            except DATABASE_AWAY as error:
                self.error = _away()
                said = f"{type(error).__name__}: {error}"
            except UnavailableError as error:
                self.error, said = error, str(error)
            except asyncpg.PostgresError as error:
                missing = schema_missing(error)
                if missing is None:
                    raise
                self.error, said = missing, str(missing)
            _log.warning("waiting_for_database", error=said)
            await pause(RETRY_SECONDS)


def _away() -> UnavailableError:
    return UnavailableError("DATABASE_UNAVAILABLE", "the database is waited for", remedy="try again")
