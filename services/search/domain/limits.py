"""Bounds of what a caller may ask for."""

from __future__ import annotations

from services.chassis.kernel.errors import InvalidInputError


def require_between(name: str, value: float, least: int, most: int, *, where: str | None = None) -> None:
    """Refuse a value out of bounds. Raises InvalidInputError ``INVALID_REQUEST``, with ``where`` or the name."""
    # Written so that a NaN, which compares with nothing, is refused.
    if not least <= value <= most:
        raise InvalidInputError(
            "INVALID_REQUEST",
            f"{name} is {value}; it must lie between {least} and {most}",
            where=where or name,
            remedy=f"give a value from {least} to {most}",
        )
