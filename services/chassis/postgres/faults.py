"""Which exceptions mean that the database is away for now, so that callers need not know the driver."""

from __future__ import annotations

import asyncpg

from services.chassis.kernel.errors import UnavailableError

DRIVER_FAULTS: tuple[type[Exception], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # What a pooled connection raises that was told of the server's end while nobody used it.
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
)
"""The driver's own faults that pass by themselves."""

DATABASE_AWAY: tuple[type[Exception], ...] = (OSError, TimeoutError, *DRIVER_FAULTS)
"""The same with the network's. Any other error of the database is the fault of a statement or its data."""

_NOT_MIGRATED: tuple[type[Exception], ...] = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidCatalogNameError,
    # The migration makes the roles, too.
    asyncpg.InvalidAuthorizationSpecificationError,
)


def schema_missing(error: Exception) -> UnavailableError | None:
    """The same as ``SCHEMA_MISSING`` where a migration mends it, else None. It does not mend a wrong password."""
    if not isinstance(error, _NOT_MIGRATED) or isinstance(error, asyncpg.InvalidPasswordError):
        return None
    return UnavailableError(
        "SCHEMA_MISSING", f"the database has not what this release needs: {error}", remedy="run `cauce migrate`"
    )
