"""Object storage through obstore: a local folder, S3, GCS or Azure by URL, credentials from their usual variables.

The contract suite proves the local folder, a store in memory, and S3 against a real HTTP server of its API. For GCS
and Azure only the construction is tried. A bucket should have a lifecycle rule that ends incomplete multipart
uploads: one whose process was killed leaves parts that no key names.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore

from services.chassis.storage import STORAGE_FAULTS, object_missing, open_store, storage_unavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PART_BYTES: Final = 5 * 1024 * 1024
"""S3's smallest part. A write holds the part that fills and those on their way."""
PARTS_ON_THE_WAY: Final = 2
READ_BYTES: Final = 256 * 1024
PROBE_KEY: Final = "health/files"
PROBE_BYTES: Final = 64 * 1024
"""More than the last free blocks of a full disk take, and of no pattern that storage could shrink."""
CHECK_SECONDS: Final = 5.0


class ObstoreStorage:
    """Implements the ObjectStorage port over any store of obstore."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._folder = Path(store.prefix) if isinstance(store, LocalStore) and store.prefix else None

    async def write(self, key: str, body: AsyncIterator[bytes]) -> None:
        """Store what ``body`` yields, in parts of 5 MiB. When it raises, no object is left under the key."""
        writer = obstore.open_writer_async(self._store, key, buffer_size=PART_BYTES, max_concurrency=PARTS_ON_THE_WAY)
        try:
            async for chunk in body:
                with _faults():
                    await writer.write(chunk)
        except BaseException as error:
            with suppress(BaseError, OSError):
                await writer.__aexit__(type(error), error, error.__traceback__)
            raise
        with _faults():
            await writer.close()
            if self._folder is not None:
                await asyncio.to_thread(_make_durable, self._folder / key)

    async def open(self, key: str) -> AsyncIterator[bytes]:
        """The object's bytes in pieces of 256 KiB or so."""
        with _faults():
            try:
                result = await obstore.get_async(self._store, key)
            except FileNotFoundError as error:
                raise await object_missing(self._store) from error
        return _pieces(result.stream(min_chunk_size=READ_BYTES))

    async def delete(self, key: str) -> None:
        """Delete the object and what an interrupted write left of it; that there is none is no fault."""
        with _faults(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, key)
        if self._folder is not None:
            await asyncio.to_thread(_delete_staged, self._folder / key)

    async def check(self) -> None:
        """Write a small object."""
        with _faults():
            async with asyncio.timeout(CHECK_SECONDS):
                await obstore.put_async(self._store, PROBE_KEY, os.urandom(PROBE_BYTES), use_multipart=False)


def open_storage(url: str) -> ObstoreStorage:
    """The storage at this address. Raises ConfigurationError ``STORAGE_MISCONFIGURED``."""
    return ObstoreStorage(open_store(url))


async def _pieces(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while True:
        with _faults():
            piece = await anext(stream, None)
        if piece is None:
            return
        yield bytes(piece)


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except STORAGE_FAULTS as error:
        raise storage_unavailable(error) from error


def _make_durable(path: Path) -> None:
    """Have the bytes and the name survive a loss of power: the file's row will say that they are safe."""
    for target in (path, path.parent):
        descriptor = os.open(target, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _delete_staged(path: Path) -> None:
    """Delete what a killed write left: obstore gathers the bytes of a local object beside it, as ``name#number``."""
    for staged in path.parent.glob(f"{path.name}#*"):
        staged.unlink(missing_ok=True)
