"""Who is asking. A scope is a required argument of every repository and query, and it fails closed."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.kernel.errors import ScopeError


@dataclass(frozen=True, slots=True)
class AccessScope:
    """The rows a caller may see: those of one tenant.

    Raises:
        ScopeError: ``SCOPE_EMPTY`` when no tenant is named; there is no scope that means "everything".
    """

    tenant_id: str

    def __post_init__(self) -> None:
        if not self.tenant_id.strip():
            raise ScopeError("SCOPE_EMPTY", "the access scope names no tenant", remedy="say which tenant asks")
