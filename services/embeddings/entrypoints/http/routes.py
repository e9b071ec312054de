"""What an operator may ask of the embeddings service. Reading what it made is the search service's matter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from services.chassis.http.app import CallerScope

router = APIRouter(tags=["operations"])


class Sweep(BaseModel):
    """What a sweep found and marked for repair."""

    total: int
    counts: dict[str, dict[str, int]] = Field(
        description="By kind (file, or a type), then by reason: MISSING, STALE, ORPHANED, STUCK, OTHER_SPACE, "
        "OTHER_RECIPE (of a file that was read with other settings), EXHAUSTED (given up long ago, tried again) or "
        "UNOWNED (without a tenant, which only its source can mend)"
    )


@router.post("/sweep")
async def sweep(request: Request, _: CallerScope) -> Sweep:
    """Compare what there is with what was made of it, and mark what differs. A healthy system has nothing to mark."""
    run: Callable[[], Awaitable[dict[str, dict[str, int]]]] = request.app.state.sweep
    counts = await run()
    return Sweep(total=sum(sum(reasons.values()) for reasons in counts.values()), counts=counts)
