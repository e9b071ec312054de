"""SQL for tables whose names come from a registry: placeholders in a ``.sql`` file, filled with checked identifiers.

Values never come in here; a statement binds them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def identifier(name: str) -> str:
    """The name between quotes. Raises ValueError for one that needs escaping or that PostgreSQL would cut."""
    if _IDENTIFIER.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not an identifier")
    return f'"{name}"'


def literal(name: str) -> str:
    """An identifier as a text literal. Raises ValueError as ``identifier`` does."""
    identifier(name)
    return f"'{name}'::text"


def fill(template: str, parts: Mapping[str, str]) -> str:
    """The template with its placeholders replaced by SQL. Raises KeyError for an unknown one."""
    return _PLACEHOLDER.sub(lambda match: parts[match[1]], template)


@cache
def load_template(package: str, name: str) -> str:
    """Return the text of ``<package>/sql/templates/<name>.sql``."""
    return (files(package) / "sql" / "templates" / f"{name}.sql").read_text(encoding="utf-8")
