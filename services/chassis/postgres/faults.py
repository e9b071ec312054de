"""Which exceptions mean that the database is away for now, so that callers need not know the driver."""

from __future__ import annotations

import asyncpg

DATABASE_AWAY: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
)
"""Faults that pass by themselves. Any other error of the database is the fault of a statement or its data."""
