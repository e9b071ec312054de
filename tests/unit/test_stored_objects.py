"""Objects of a local store, where storage fails before a document is read and while it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.chassis.kernel.errors import UnavailableError
from services.embeddings.adapters.storage import StoredObjects
from services.embeddings.domain.errors import ExtractionError

UNREADABLE = Path("/proc/self/mem")
"""Opens, and gives EIO at the first byte, as a broken disk does."""


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """An object of the store in ``tmp_path``."""
    path = tmp_path / "files" / "note"
    path.parent.mkdir()
    path.write_bytes(b"hola")
    return path


async def test_bytes_that_do_not_come_are_a_fault_of_storage(stored: Path, tmp_path: Path) -> None:
    lead(stored, to=UNREADABLE)

    assert await fault_of(tmp_path, "files/note") == "STORAGE_UNAVAILABLE"


async def test_an_object_that_cannot_be_looked_for_is_a_fault_of_storage(stored: Path, tmp_path: Path) -> None:
    lead(stored, to=stored)

    assert await fault_of(tmp_path, "files/note") == "STORAGE_UNAVAILABLE"
    assert await fault_of(tmp_path, "files/" + 300 * "n") == "STORAGE_UNAVAILABLE"


async def test_a_document_that_looks_broken_while_its_bytes_do_not_come_is_not(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="STORAGE_UNAVAILABLE"):
        async with StoredObjects(tmp_path.as_uri()).as_local_file("files/note") as path:
            lead(path, to=UNREADABLE)
            raise ExtractionError("CORRUPT", "it is broken")


async def test_a_document_whose_bytes_all_come_is_broken_itself(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(ExtractionError, match="CORRUPT"):
        async with StoredObjects(tmp_path.as_uri()).as_local_file("files/note"):
            raise ExtractionError("CORRUPT", "it is broken")


def lead(path: Path, *, to: Path) -> None:
    """Put a link in the place of the object."""
    path.unlink()
    path.symlink_to(to)


async def fault_of(folder: Path, storage_key: str) -> str:
    """The code with which the object is refused."""
    with pytest.raises(UnavailableError) as caught:
        async with StoredObjects(folder.as_uri()).as_local_file(storage_key):
            pass
    return caught.value.code
