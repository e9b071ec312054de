"""The pages of files as a reader sees them, and where on them the text of a chunk stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field

from services.chassis.http.app import CallerScope
from services.chassis.http.parameters import WholeNumber
from services.chassis.http.slots import Slots
from services.embeddings.application.find_highlight import FindHighlight
from services.embeddings.application.show_page import ShowPage
from services.embeddings.domain.document import TENTHS, PageLayout, Rect
from services.embeddings.domain.highlight import ChunkPlace

MAX_SIZE = 4_000
PNG = "image/png"

router = APIRouter(prefix="/files", tags=["pages"])

FileId = Annotated[WholeNumber, Path(alias="fileId")]


@dataclass(frozen=True, slots=True)
class PagesSurface:
    """The use cases that the routes call, as ``app.state.pages``, and how many pages are made into images at once."""

    show: ShowPage
    highlight: FindHighlight
    slots: Slots


class BoxBody(BaseModel):
    """A rectangle on a page, from its left upper corner, in the page's unit."""

    x0: float
    y0: float
    x1: float
    y1: float

    @classmethod
    def of(cls, rect: Rect) -> Self:
        """Render a rectangle."""
        x0, y0, x1, y1 = (length / TENTHS for length in rect)
        return cls(x0=x0, y0=y0, x1=x1, y1=y1)


class HighlightedPageBody(BaseModel):
    """A page as it is shown, and the lines on it that have characters of the chunk, whole, in the order of its text."""

    page: int
    width: float
    height: float
    unit: str = Field(description="of all lengths: pt, 1/72 inch, or px, a pixel of the image that the page is")
    boxes: list[BoxBody]

    @classmethod
    def of(cls, number: int, layout: PageLayout, chunk: ChunkPlace) -> Self:
        """Render a page."""
        return cls(
            page=number,
            width=layout.width / TENTHS,
            height=layout.height / TENTHS,
            unit=layout.unit,
            boxes=[BoxBody.of(rect) for rect in chunk.boxes(layout)],
        )


class HighlightBody(BaseModel):
    """Where the text of a chunk stands."""

    file_id: int
    chunk_id: int
    position: int
    page_from: int | None
    page_to: int | None
    pages: list[HighlightedPageBody] = Field(
        description="from page_from to page_to; none in a format that leaves it to other programs where things stand"
    )


def _surface(request: Request) -> PagesSurface:
    surface: PagesSurface = request.app.state.pages
    return surface


Surface = Annotated[PagesSurface, Depends(_surface)]


@router.get("/{fileId}/chunks/{chunkId}/highlight")
async def get_highlight(
    file_id: FileId, chunk_id: Annotated[WholeNumber, Path(alias="chunkId")], scope: CallerScope, pages: Surface
) -> HighlightBody:
    """Where the text of a chunk stands on its pages."""
    chunk = await pages.highlight(scope, file_id, chunk_id)
    return HighlightBody(
        file_id=file_id,
        chunk_id=chunk.chunk_id,
        position=chunk.position,
        page_from=chunk.page_from,
        page_to=chunk.page_to,
        pages=[HighlightedPageBody.of(number, layout, chunk) for number, layout in chunk.pages],
    )


@router.get(
    "/{fileId}/pages/{number}.png",
    response_class=Response,
    responses={200: {"content": {PNG: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_page(
    file_id: FileId,
    number: Annotated[WholeNumber, Path(description="from 1")],
    scope: CallerScope,
    pages: Surface,
    size: Annotated[int, Query(ge=16, le=MAX_SIZE, description="the most pixels of the longer side")] = 1_600,
) -> Response:
    """A page of a PDF, an image, or a frame of a TIFF, as it is shown."""
    with pages.slots.take():
        image = await pages.show(scope, file_id, number, size)
    return Response(image.data, media_type=image.media_type, headers={"X-Content-Type-Options": "nosniff"})
