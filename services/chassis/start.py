"""How a process ends that is configured in a way that it refuses to run with: one line, and a status of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError
from pydantic_settings import SettingsError

from services.chassis.kernel.errors import ConfigurationError
from services.chassis.observability.logs import get_logger

EXIT_STATUS = 78
"""EX_CONFIG of sysexits.h: starting it again does not help."""

_log = get_logger(__name__)


@contextmanager
def saying_refusals() -> Iterator[None]:
    """Log a ConfigurationError, or what is wrong with the settings, and end with ``EXIT_STATUS``."""
    try:
        yield
    except (ConfigurationError, ValidationError, SettingsError) as error:
        refusal = error if isinstance(error, ConfigurationError) else _invalid_settings(error)
        _log.error(
            "start_refused", code=refusal.code, error=refusal.message, where=refusal.where, remedy=refusal.remedy
        )
        sys.exit(EXIT_STATUS)


def _invalid_settings(error: ValidationError | SettingsError) -> ConfigurationError:
    message, where = str(error), None
    if isinstance(error, ValidationError):
        faults = {_variable(fault["loc"]): fault["msg"] for fault in error.errors()}
        message = "; ".join(f"{name}: {said}" if name else said for name, said in faults.items())
        where = ", ".join(filter(None, faults)) or None
    return ConfigurationError(
        "SETTINGS_INVALID", message, where=where, remedy="set what is named here, as README.md has it"
    )


def _variable(location: tuple[int | str, ...]) -> str:
    """The environment variable at the start of a place within the settings; nothing for all of them together."""
    name = str(location[0]).upper() if location else ""
    return name if not name or name.startswith("CAUCE_") else f"CAUCE_{name}"
