"""Reads files with their present status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from services.chassis.kernel.errors import NotFoundError
from services.chassis.kernel.scope import AccessScope
from services.files.application.ports import Files
from services.files.domain.file import MAX_FILE_ID, File

MAX_PAGE = 1_000
"""The most files that a page has."""


@dataclass(frozen=True, slots=True)
class FilePage:
    """Files, newest first. ``next_after`` is where the next page starts, None on the last one."""

    files: list[File]
    next_after: int | None


@dataclass(frozen=True, slots=True)
class FindFiles:
    """The use case."""

    files: Files

    async def get(self, scope: AccessScope, file_id: int) -> File:
        """The file as it is now. Raises NotFoundError ``FILE_NOT_FOUND``."""
        return await self.files.get(scope, file_id)

    async def page(self, scope: AccessScope, *, limit: int, after: int | None = None) -> FilePage:
        """A page of at most ``limit`` files that are older than ``after``."""
        files = await self.files.newest(scope, before_id=MAX_FILE_ID if after is None else after, limit=limit + 1)
        return FilePage(files[:limit], files[limit - 1].file_id if len(files) > limit else None)

    async def watch(self, scope: AccessScope, file: File, *, every_seconds: float) -> AsyncIterator[File | None]:
        """The file, and again at every change until it is final or deleted. Looks every so many seconds.

        None stands for a look that found no change.
        """
        yield file
        while not file.status.is_final:
            await asyncio.sleep(every_seconds)
            previous = file
            try:
                file = await self.files.get(scope, file.file_id)
            except NotFoundError:
                return
            yield None if file == previous else file
