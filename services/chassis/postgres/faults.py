"""Which exceptions mean that the database is away for now, so that callers need not know the driver."""

from __future__ import annotations

import asyncpg

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
