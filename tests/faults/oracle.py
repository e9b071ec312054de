"""What must be true: all the time for a reader, and at the end for everybody."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from deploy.embedded.postgres import DATABASE
from services.chassis.postgres.faults import DATABASE_AWAY
from services.files.adapters.postgres.files import DELETION_RETRY
from tests.faults.fleet import BALLAST, LEASE_SECONDS, SWEEP_SECONDS, Fleet
from tests.faults.workload import MARK, Truth, paragraphs_of, sha256_of

CHUNKS = "SELECT file_id, position, text FROM module_embeddings_chunk_read ORDER BY file_id, position"
READ_EVERY_SECONDS = 0.02
ALLOWANCE_SECONDS = 40.0 + DELETION_RETRY.total_seconds()
"""What the end may take besides a lease and a sweep: a process that starts again, a member of the group that is given
up (10 s), the longest pause before a new try (5 s), an upload that stopped (5 s), a deletion of bytes that broke off (a
minute), and the work, on a busy machine."""
_log = logging.getLogger(__name__)
Marks = list[tuple[int, int, int]]


@dataclass
class Reader:
    """Reads all chunks again and again, as the search service may, and notes what it must never see."""

    fleet: Fleet
    reads: int = 0
    faults: list[str] = field(default_factory=list)
    _newest: dict[int, tuple[int, int]] = field(default_factory=dict)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch for the time of the context."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled(), task.exception()

    async def _watch(self) -> None:
        while True:
            try:
                connection = await asyncpg.connect(self.fleet.postgres.url_of(DATABASE, "cauce_search"))
                try:
                    while True:
                        self.check(marks_by_file(await connection.fetch(CHUNKS)))
                        await asyncio.sleep(READ_EVERY_SECONDS)
                finally:
                    connection.terminate()
            except DATABASE_AWAY:
                await asyncio.sleep(0.1)

    def check(self, files: dict[int, Marks]) -> None:
        """Note what is wrong with what was read."""
        self.reads += 1
        for file_id, marks in files.items():
            label, version, _ = marks[0]
            if marks != whole(label, version):
                self.faults.append(f"file {file_id} is mixed: {marks}")
            label_before, version_before = self._newest.get(file_id, (label, version))
            if label != label_before or version < version_before:
                self.faults.append(f"file {file_id}: version {version} after {version_before}")
            self._newest[file_id] = (label, version)


def whole(label: int, version: int) -> Marks:
    """The marks of all chunks of a version, each once, in order."""
    return [(label, version, paragraph) for paragraph in range(paragraphs_of(version))]


def marks_by_file(rows: Sequence[asyncpg.Record]) -> dict[int, Marks]:
    """The marks that each file's chunks hold, in their order."""
    files: dict[int, Marks] = defaultdict(list)
    for row in rows:
        found = [(int(label), int(version), int(part)) for label, version, part in MARK.findall(row["text"])]
        files[row["file_id"]] += found
    return files


async def settled(fleet: Fleet, truth: Truth) -> None:
    """Wait until nothing is wrong any more: at most for a lease, a sweep and ``ALLOWANCE_SECONDS``.

    Raises:
        AssertionError: something was still wrong then, and what; and how each process is.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    while wrong := await what_is_wrong(fleet, truth):
        if clock() - began > LEASE_SECONDS + SWEEP_SECONDS + ALLOWANCE_SECONDS:
            raise AssertionError("\n".join([*wrong, *(member.state() for member in fleet.members.values())]))
        await asyncio.sleep(0.2)
    _log.info("settled after %.1f s", clock() - began)


async def what_is_wrong(fleet: Fleet, truth: Truth) -> list[str]:
    """Every way in which the tables and the storage differ from what was promised."""
    return [
        *await _files(fleet, truth),
        *await _tags(fleet, truth),
        *await _leftovers(fleet),
    ]


async def _files(fleet: Fleet, truth: Truth) -> list[str]:
    chunks = marks_by_file(await fleet.query(CHUNKS))
    stored = {row["id"]: row for row in await fleet.query("SELECT id, state, sha256 FROM module_files_file")}
    mirror = {row["file_id"]: row for row in await fleet.query("SELECT * FROM module_embeddings_files_file")}
    wrong = []
    for file_id, (label, version) in truth.files.items():
        if version is None:
            if file_id in stored or file_id in mirror or file_id in chunks:
                wrong.append(f"deleted file {file_id} is still there")
        elif file_id not in stored or stored[file_id]["sha256"] != sha256_of(label, version):
            wrong.append(f"file {file_id} is lost, or not at version {version}")
        elif file_id not in mirror or mirror[file_id]["status"] != "COMPLETED":
            wrong.append(f"file {file_id} has no end state: {dict(mirror.get(file_id, {}))}")
        elif chunks.get(file_id) != whole(label, version):
            wrong.append(f"file {file_id} at version {version} has the chunks {chunks.get(file_id)}")
    wrong += [f"chunks of file {file_id}, which nobody has" for file_id in chunks.keys() - truth.files.keys()]
    # A registration whose answer was lost: its sender made another, and the janitor ends it.
    wrong += [
        f"file {file_id} that nobody knows is {row['state']}"
        for file_id, row in stored.items()
        if file_id not in truth.files and row["state"] != "FAILED"
    ]
    return wrong


async def _tags(fleet: Fleet, truth: Truth) -> list[str]:
    rows = await fleet.query(
        "SELECT entity_id, embedding_text FROM module_embeddings_unified WHERE entity_type = 'tag'"
    )
    found: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        found[row["entity_id"]].append(row["embedding_text"])
    wrong = []
    for tag_id, version in truth.tags.items():
        texts = found.pop(tag_id, [])
        if version is None and texts:
            wrong.append(f"deleted tag {tag_id} is still there")
        if version is not None and (len(texts) != 1 or f"<t{tag_id} v{version}>" not in texts[0]):
            wrong.append(f"tag {tag_id} at version {version} has the texts {texts}")
    wrong += [f"vector of tag {tag_id}, which nobody has" for tag_id in found]
    return wrong


async def _leftovers(fleet: Fleet) -> list[str]:
    counts = {
        "events in the files outbox": "SELECT count(*) FROM module_files_outbox",
        "events in the embeddings outbox": "SELECT count(*) FROM module_embeddings_outbox",
        "resources without end state": "SELECT count(*) FROM module_embeddings_resource WHERE status <> 'COMPLETED'",
        "storage keys set aside": "SELECT count(*) FROM module_files_garbage",
    }
    found = {name: (await fleet.query(statement))[0][0] for name, statement in counts.items()}
    wrong = [f"{count} {name}" for name, count in found.items() if count]
    keys = {row[0] for row in await fleet.query("SELECT storage_key FROM module_files_file WHERE state = 'STORED'")}
    objects = set(_objects(fleet.storage))
    wrong += [f"object {key} that no file points to" for key in objects - keys]
    wrong += [f"object {key} is missing" for key in keys - objects]
    return wrong


def _objects(storage: Path) -> list[str]:
    paths = (path for path in storage.rglob("*") if path.is_file())
    return [str(path.relative_to(storage)) for path in paths if path.name not in {BALLAST, "files"}]


async def age_changes(fleet: Fleet) -> None:
    """Make the changes of resources an hour older: the sweep leaves the last minute's to the events."""
    connection: Any = await asyncpg.connect(fleet.postgres.url)
    try:
        await connection.execute("SET session_replication_role = replica")
        await connection.execute("UPDATE module_tag_tag SET updated_at = updated_at - interval '1 hour'")
    finally:
        await connection.close()
