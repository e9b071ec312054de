"""SQL is read from files: one statement per file, its purpose in the first line."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def load_query(package: str, name: str) -> str:
    """Return the statement in ``<package>/sql/queries/<name>.sql``."""
    return (files(package) / "sql" / "queries" / f"{name}.sql").read_text(encoding="utf-8")
