"""The describer that sends images to Gemini."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from services.chassis.kernel.errors import InvalidInputError, UnavailableError
from services.chassis.kernel.text import sanitise
from services.chassis.models.failures import CallFailedError, ImageNotDescribedError
from services.embeddings.domain.document import PageImage, PageKind
from services.embeddings.domain.enrichment import ImageDescription


class Vision(Protocol):
    """A model that sees."""

    async def describe(self, data: bytes, media_type: str) -> str:
        """What the image shows."""

    async def aclose(self) -> None:
        """Close the connections."""


class GeminiImageDescriber:
    """What each image shows, in the language of its labels, with every label in it."""

    page_kind = PageKind.DESCRIBED

    def __init__(self, vision: Vision, name: str) -> None:
        """``name`` is the model's."""
        self._vision = vision
        self.name = name

    async def describe(self, images: Sequence[PageImage]) -> list[ImageDescription]:
        """One description for each image, in order; the model's limiter bounds how many are asked for at once.

        An image that the model refuses, or fails at every time, carries an error.

        Raises:
            UnavailableError: the model is away or its quota is used up.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._describe(image)) for image in images]
        except* UnavailableError as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._vision.aclose()

    async def _describe(self, image: PageImage) -> ImageDescription:
        try:
            return ImageDescription(sanitise(await self._vision.describe(image.data, image.media_type)))
        except (ImageNotDescribedError, InvalidInputError, CallFailedError) as error:
            return ImageDescription("", str(error))
