"""Another embedding space: built beside the active one, made the active one, gone back from, dropped."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from services.chassis.kernel.errors import InvalidInputError
from services.chassis.models.registry import KNOWN_SPACES
from services.embeddings.application.space_ports import SpaceProgress, Spaces
from services.embeddings.entrypoints.http.routes import require_operator

router = APIRouter(prefix="/reindex", tags=["operations"], dependencies=[Depends(require_operator)])


class WantedSpace(BaseModel):
    """A space to build, and how fast."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    space: str
    texts_per_minute: Annotated[
        int | None,
        Field(
            alias="textsPerMinute",
            ge=0,
            le=10_000_000,
            description="of all workers together; none: as fast as they can; 0: the building rests",
        ),
    ] = None


class Space(BaseModel):
    """A space that has vectors."""

    name: str
    state: Literal["ACTIVE", "BUILDING"] = Field(
        description="ACTIVE is searched, BUILDING is built beside it, and kept up to date once nothing is missing"
    )
    texts: int = Field(description="how many texts there are")
    missing: int = Field(description="how many of them have no vector in this space")
    texts_per_minute: int | None
    fault: str | None = Field(description="why its building did not get on the last time")
    begun_at: datetime | None
    activated_at: datetime | None = Field(description="when it was made active last; one that was can be gone back to")

    @classmethod
    def of(cls, progress: SpaceProgress) -> Space:
        """The space as it is shown."""
        return cls(
            name=progress.space.name,
            state=progress.state,
            texts=progress.texts,
            missing=progress.missing,
            texts_per_minute=progress.texts_per_minute,
            fault=progress.fault,
            begun_at=progress.begun_at,
            activated_at=progress.activated_at,
        )


class SpaceList(BaseModel):
    """The active space first, then the one beside it, if there is one."""

    spaces: list[Space]


async def _list(request: Request) -> SpaceList:
    return SpaceList(spaces=[Space.of(progress) for progress in await _spaces(request).list_spaces()])


def _spaces(request: Request) -> Spaces:
    spaces: Spaces = request.app.state.spaces
    return spaces


@router.get("")
async def list_spaces(request: Request) -> SpaceList:
    """The embedding spaces, and how far the one that is built is."""
    return await _list(request)


@router.post("", status_code=202)
async def begin(request: Request, wanted: WantedSpace) -> SpaceList:
    """Have the workers build a space beside the active one from the stored texts, or go on with it at another rate."""
    if wanted.space not in KNOWN_SPACES:
        raise InvalidInputError(
            "SPACE_UNKNOWN",
            f"this release knows no embedding space {wanted.space!r}",
            where="space",
            remedy=f"name one of {', '.join(KNOWN_SPACES)}",
        )
    await _spaces(request).begin(KNOWN_SPACES[wanted.space], wanted.texts_per_minute)
    return await _list(request)


@router.post("/swap")
async def swap(request: Request) -> SpaceList:
    """Make the space that was built the active one, if nothing is missing in it; the other one is kept beside it."""
    await _spaces(request).swap(back=False)
    return await _list(request)


@router.post("/rollback")
async def roll_back(request: Request) -> SpaceList:
    """Go back to the space that was active before, if it was not dropped and nothing is missing in it."""
    await _spaces(request).swap(back=True)
    return await _list(request)


@router.delete("")
async def drop(request: Request) -> SpaceList:
    """Give up the space beside the active one. Its vectors are removed bit by bit."""
    await _spaces(request).drop()
    return await _list(request)
