"""What an operator may ask of the embeddings service. Reading what it made is the search service's matter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from services.chassis.http.app import CallerScope
from services.chassis.kernel.errors import ScopeError

router = APIRouter(tags=["operations"])


class Sweep(BaseModel):
    """What a sweep found and marked for repair."""

    total: int
    counts: dict[str, dict[str, int]] = Field(
        description="By kind (file, or a type), then by reason: MISSING, STALE, ORPHANED, STUCK, OTHER_SPACE, "
        "OTHER_RECIPE (of a file that was read with other settings, or by an older edition of the rules), "
        "LOST (of a file whose bytes were missing an hour ago, tried again), "
        "EXHAUSTED (given up long ago, tried again) or UNOWNED (without a tenant, which only its source can mend)"
    )


async def require_operator(request: Request, _: CallerScope) -> None:
    """Refuse what is done for every tenant, unless this service is for operators. Raises ScopeError."""
    if not request.app.state.operator_access:
        raise ScopeError(
            "OPERATOR_ONLY",
            "this acts for every tenant, which callers of this service may not",
            remedy="set CAUCE_OPERATOR_ACCESS=true where operators alone reach the service",
        )


@router.post("/sweep", dependencies=[Depends(require_operator)])
async def sweep(request: Request) -> Sweep:
    """Compare what there is with what was made of it, and mark what differs. A healthy system has nothing to mark."""
    run: Callable[[], Awaitable[dict[str, dict[str, int]]]] = request.app.state.sweep
    counts = await run()
    return Sweep(total=sum(sum(reasons.values()) for reasons in counts.values()), counts=counts)
