"""Clients that upload, replace and delete files and change resources, and know what they were promised.

A client repeats a request until it is answered, as a client does. So at the end there is one truth for each thing.
A file's text says in every paragraph which file, version and paragraph it is, so that whoever reads chunks can tell.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.faults.fleet import PATIENCE, Fleet

CLIENTS = 3
FILES_A_CLIENT = 5
TAGS_A_CLIENT = 4
PAUSE_SECONDS = 0.15
MARK = re.compile(r"<f(\d+) v(\d+) p(\d+)>")
FILLER = "La bomba de la nave tres se revisa cada seis meses y su presión se anota en el libro. "


def paragraphs_of(version: int) -> int:
    """How many paragraphs, and so chunks, a version has."""
    return 1 + version % 4


def text_of(label: int, version: int) -> bytes:
    """The content of a version of a file: paragraphs of which no two fit into one chunk."""
    body = (FILLER * 10)[:700]
    return "\n\n".join(f"<f{label} v{version} p{n}> {body}" for n in range(paragraphs_of(version))).encode()


def sha256_of(label: int, version: int) -> bytes:
    """The digest of that content."""
    return hashlib.sha256(text_of(label, version)).digest()


@dataclass
class Truth:
    """What the clients were promised.

    Attributes:
        files: by id, the file's label and its version, None once it is deleted.
        tags: by id, the version of its text, None once it is deleted.
    """

    files: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    tags: dict[int, int | None] = field(default_factory=dict)


class Clients:
    """Some clients at work, each on files and resources of its own.

    Attributes:
        truth: what they were promised so far.
        refusals: how often they were told to come again, by code.
    """

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.truth = Truth()
        self.refusals: Counter[str] = Counter()
        self._fleet = fleet
        self._seed = seed
        self._version = 0
        self._label = 0

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[Truth]:
        """Work for the time of the context; afterwards every request was answered."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._work(number, stop))
            try:
                yield self.truth
            finally:
                stop.set()

    async def _work(self, number: int, stop: asyncio.Event) -> None:
        chance = random.Random(f"{self._seed} {number}")
        mine: list[int] = []
        while not stop.is_set():
            dice = chance.random()
            if dice < 0.25:
                await self._change_tag(1 + number * TAGS_A_CLIENT + chance.randrange(TAGS_A_CLIENT), chance.random())
            elif len(mine) < FILES_A_CLIENT:
                mine.append(await self._upload())
            elif dice < 0.85:
                await self._replace(chance.choice(mine))
            else:
                await self._delete(mine.pop(chance.randrange(len(mine))))
            await asyncio.sleep(PAUSE_SECONDS)

    async def _upload(self) -> int:
        self._label += 1
        label = self._label
        created = await self._insist("POST", "/files", {201}, json={"name": f"f{label}.txt"})
        file_id: int = created.json()["file_id"]
        self.truth.files[file_id] = (label, 0)
        await self._replace(file_id)
        return file_id

    async def _replace(self, file_id: int) -> None:
        self._version += 1
        label, version = self.truth.files[file_id][0], self._version
        await self._insist("PUT", f"/files/{file_id}/content", {202}, content=text_of(label, version))
        self.truth.files[file_id] = (label, version)

    async def _delete(self, file_id: int) -> None:
        await self._insist("DELETE", f"/files/{file_id}", {204, 404})
        self.truth.files[file_id] = (self.truth.files[file_id][0], None)

    async def _change_tag(self, tag_id: int, dice: float) -> None:
        if dice < 0.2:
            await self._insist("DELETE", f"/resources/tag/{tag_id}", {204, 404})
            self.truth.tags[tag_id] = None
            return
        self._version += 1
        version = self._version
        definition = {"name": f"tag {tag_id}", "description": f"<t{tag_id} v{version}>"}
        await self._insist("PUT", f"/resources/tag/{tag_id}", {200, 201}, json=definition)
        self.truth.tags[tag_id] = version

    async def _insist(self, method: str, path: str, wanted: set[int], **request: Any) -> httpx2.Response:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    answer = await self._fleet.files.request(method, path, **request)
                except httpx2.TransportError:
                    pass
                else:
                    if answer.status_code in wanted:
                        return answer
                    assert answer.status_code in {409, 429, 503}, answer.text
                    self.refusals[answer.json()["code"]] += 1
                await asyncio.sleep(0.1)
