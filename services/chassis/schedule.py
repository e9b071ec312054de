"""What is done by the clock, and must outlive any fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from services.chassis.kernel.errors import CauceError
from services.chassis.observability import get_logger
from services.chassis.postgres.faults import DATABASE_AWAY, schema_missing
from services.chassis.stopping import pause

_log = get_logger(__name__)


async def every(seconds: float, name: str, action: Callable[[], Awaitable[object]]) -> None:
    """Run the action now and every so often until cancelled. Whatever fails is said, and tried again the next time."""
    while True:
        try:
            await action()
        except Exception as error:  # noqa: BLE001 - nothing else does again what is due
            known = isinstance(error, (CauceError, *DATABASE_AWAY)) or schema_missing(error) is not None
            said = f"{type(error).__name__}: {error}"
            _log.warning("scheduled_action_failed", action=name, error=said, exc_info=not known)
        await pause(seconds)
