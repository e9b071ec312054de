"""Which exceptions mean that the database is away for now, so that callers need not know the driver."""

from __future__ import annotations

import asyncpg

from services.chassis.kernel.errors import ConfigurationError, TimedOutError, UnavailableError

TIMEOUT_PAUSE_SECONDS = 120.0
"""How long what took the database too long is left alone: it may have been a bad moment."""

DRIVER_FAULTS: tuple[type[Exception], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # What a pooled connection raises that was told of the server's end while nobody used it.
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    # A primary that was demoted, or whose disk is full, and a role's lock_timeout.
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.LockNotAvailableError,
    # Passwords are exchanged while processes run.
    asyncpg.InvalidPasswordError,
)
"""The driver's own faults that pass by themselves."""

DATABASE_AWAY: tuple[type[Exception], ...] = (OSError, TimeoutError, *DRIVER_FAULTS)
"""The same with the network's. Any other error of the database is the fault of a statement or its data."""


class DatabaseUnreachableError(ConnectionError):
    """No connection can be made, which tells it from other faults of the network."""


NOT_MIGRATED: tuple[type[Exception], ...] = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidCatalogNameError,
    # The migration makes the roles, too.
    asyncpg.InvalidAuthorizationSpecificationError,
)
"""What a migration mends; a wrong password, which is the last one's subclass, it does not."""


def schema_missing(error: Exception) -> UnavailableError | None:
    """The same as ``SCHEMA_MISSING`` where a migration mends it, else None."""
    if not isinstance(error, NOT_MIGRATED) or isinstance(error, asyncpg.InvalidPasswordError):
        return None
    return not_migrated(str(error))


def not_migrated(what: str) -> UnavailableError:
    """The error of a database that lacks what the words say."""
    return UnavailableError(
        "SCHEMA_MISSING", f"the database has not what this release needs: {what}", remedy="run `cauce migrate`"
    )


def passing_fault(error: Exception) -> UnavailableError | None:
    """The same as ``DATABASE_UNAVAILABLE`` or ``SCHEMA_MISSING`` where the database is at fault itself, else None.

    A statement that was cancelled, most likely by a ``statement_timeout``, may be at fault as well: TimedOutError,
    ``DATABASE_TIMEOUT``.
    """
    if isinstance(error, asyncpg.QueryCanceledError):
        return TimedOutError(
            "DATABASE_TIMEOUT",
            f"the database cancelled a statement: {error}",
            remedy="raise its statement_timeout for the role of the service, or split what is stored",
            retry_after=TIMEOUT_PAUSE_SECONDS,
        )
    # What the driver refuses to send is a fault of the data, and a ValueError as well.
    away = (*DRIVER_FAULTS, DatabaseUnreachableError, TimeoutError)
    if isinstance(error, away) and not isinstance(error, ValueError):
        said = f"the database does not work: {type(error).__name__}: {error}"
        return UnavailableError("DATABASE_UNAVAILABLE", said, remedy="try again")
    return schema_missing(error)


def database_refused(error: Exception, where: str | None) -> ConfigurationError | None:
    """The same as an error of the address that ``where`` names, else None."""
    if isinstance(error, (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)):
        code, said = "DATABASE_REFUSED", "the database does not take us"
    elif isinstance(error, ValueError):
        code, said = "DATABASE_ADDRESS_INVALID", "this is no address of a database"
    else:
        return None
    remedy = "write postgresql://ROLE:PASSWORD@HOST:PORT/DATABASE, with the role's present password"
    return ConfigurationError(code, f"{said}: {error}", where=where, remedy=remedy)
