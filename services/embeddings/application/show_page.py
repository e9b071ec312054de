"""Shows a page of a file as an image."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.kernel.errors import ConflictError, NotFoundError
from services.chassis.kernel.scope import AccessScope
from services.embeddings.application.ports import FilePages, ObjectReader, PageRenderer
from services.embeddings.domain.document import PageImage
from services.embeddings.domain.errors import ExtractionError, page_not_found

MAX_PAGE = 10**6


@dataclass(frozen=True, slots=True)
class ShowPage:
    """The use case."""

    pages: FilePages
    objects: ObjectReader
    renderer: PageRenderer

    async def __call__(self, scope: AccessScope, file_id: int, number: int, size: int) -> PageImage:
        """The page as a PNG whose longer side has at most ``size`` pixels.

        Raises:
            NotFoundError: ``FILE_NOT_FOUND``, ``PAGE_NOT_FOUND``, or ``NO_PAGES`` for a format that has none to show.
            GoneError: ``CONTENT_MISSING``, its bytes are lost.
            ConflictError: the code with which the file cannot be read, such as ``ENCRYPTED`` or ``RESOURCE_LIMIT``.
        """
        file = await self.pages.get_stored(scope, file_id)
        try:
            if not 1 <= number <= MAX_PAGE:
                raise page_not_found(number)
            async with self.objects.as_local_file(file.storage_key) as path:
                return await self.renderer.render(
                    path, name=file.name, media_type=file.media_type, number=number, size=size
                )
        except ExtractionError as error:
            missing = error.code in {"PAGE_NOT_FOUND", "NO_PAGES"}
            kind, where = (NotFoundError, "number") if missing else (ConflictError, "file_id")
            raise kind(error.code, error.message, where=where, remedy=error.remedy) from error
