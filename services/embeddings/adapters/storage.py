"""Stored objects as local files: a local store's are used where they lie, others are copied for the time it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import obstore
from obstore.store import LocalStore

from services.chassis.storage import STORAGE_FAULTS, object_missing, open_store, storage_unavailable

_PART_BYTES = 1024 * 1024


class StoredObjects:
    """Reads the files service's objects by their keys. Implements the ObjectReader port."""

    def __init__(self, url: str) -> None:
        """``url`` as for ``open_store``."""
        self._store = open_store(url)

    @asynccontextmanager
    async def as_local_file(self, storage_key: str) -> AsyncIterator[Path]:
        """The object as a local file, all of which could be read. What fails while storage does is storage's fault.

        Raises:
            GoneError: ``CONTENT_MISSING``, there is none.
            UnavailableError: ``STORAGE_UNAVAILABLE``.
        """
        if isinstance(self._store, LocalStore) and self._store.prefix is not None:
            path = Path(self._store.prefix) / storage_key
            await self._read_through(path)
            try:
                yield path
            except Exception:
                await self._read_through(path)
                raise
        else:
            with TemporaryDirectory(prefix="cauce-") as folder:
                path = Path(folder) / "object"
                await self._download(storage_key, path)
                yield path

    async def _read_through(self, path: Path) -> None:
        async with self._faults():
            await asyncio.to_thread(_read_through, path)

    async def _download(self, storage_key: str, path: Path) -> None:
        async with self._faults():
            answer = await obstore.get_async(self._store, storage_key)
            with path.open("wb") as file:
                async for part in answer.stream():
                    file.write(part)

    @asynccontextmanager
    async def _faults(self) -> AsyncIterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise await object_missing(self._store) from error
        except STORAGE_FAULTS as error:
            raise storage_unavailable(error) from error


def _read_through(path: Path) -> None:
    """Read all bytes: readers in native code take those that do not come for a broken document, or for blank pages."""
    part = bytearray(_PART_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(part):
            pass
