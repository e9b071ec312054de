"""Stored objects as local files: a local store's are used where they lie, others are copied for the time it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from obstore.exceptions import NotFoundError as ObjectNotFoundError
from obstore.store import LocalStore, ObjectStore, from_url

from services.embeddings.application.ports import ObjectMissingError


class StoredObjects:
    """Reads the files service's objects by their keys. Implements the ObjectReader port."""

    def __init__(self, url: str) -> None:
        """``url`` is ``file:///folder``, ``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``."""
        self._store: ObjectStore = from_url(url)

    @asynccontextmanager
    async def as_local_file(self, storage_key: str) -> AsyncIterator[Path]:
        """The object as a local file. Raises ObjectMissingError when there is none."""
        try:
            if isinstance(self._store, LocalStore) and self._store.prefix is not None:
                await self._store.head_async(storage_key)
                yield Path(self._store.prefix) / storage_key
            else:
                with TemporaryDirectory(prefix="cauce-") as folder:
                    yield await self._download(storage_key, Path(folder) / "object")
        except ObjectNotFoundError as error:
            raise ObjectMissingError(storage_key) from error

    async def _download(self, storage_key: str, path: Path) -> Path:
        answer = await self._store.get_async(storage_key)
        with path.open("wb") as file:
            async for part in answer.stream():
                file.write(part)
        return path
