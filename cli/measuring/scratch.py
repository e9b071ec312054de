"""Documents in a scratch tenant of a stack, for the time of a measurement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from cli.client import FINAL, Answer, CauceClient
from cli.errors import CommandError
from cli.measuring.datasets import Document
from cli.render import Screen

AT_ONCE = 4
TRIES = 5
RETRY_SECONDS = 1.0
POLL_SECONDS = 0.5
MARK = "scratch"
"""In the metadata of what is sent, so that nothing else can be removed."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class ScratchDocuments:
    """Documents that a stack has taken in, and what is judged of them.

    Attributes:
        chunks: how many the stack made of them.
        empty: how many documents had no text to find.
        top_n: how many results bring ten different documents or passages, in most cases.
    """

    def __init__(self) -> None:
        self.chunks = 0
        self.empty = 0
        self.top_n = 10
        self._documents: dict[int, str] = {}
        self._passages: dict[tuple[int, int], str] = {}

    @property
    def file_ids(self) -> list[int]:
        """The files that the documents are."""
        return list(self._documents)

    def unit(self, found: Answer) -> str:
        """What a result is of: a document, or a passage where those are judged."""
        file_id: int = found["file_id"]
        return self._passages[file_id, found["position"]] if self._passages else self._documents[file_id]

    def ranking(self, results: Sequence[Answer]) -> list[str]:
        """What was found, best first, each once: a document stands where its best chunk does."""
        return list(dict.fromkeys(map(self.unit, results)))

    async def load(self, client: CauceClient, screen: Screen, documents: Sequence[Document]) -> None:
        """Send the documents and wait until all can be found.

        Raises:
            CommandError: ``DOCUMENT_FAILED`` for one that the stack could not process.
        """
        if [file async for file in client.files()]:
            raise CommandError("SCRATCH_IGNORED", "the stack knows no scratch tenants", remedy="update its services")
        files: dict[int, Document] = {}
        with screen.counting("sent", len(documents)) as step:

            async def send(item: tuple[int, Document]) -> None:
                number, document = item
                text = "\n".join(document.passages) or document.text
                metadata = {MARK: client.scratch} | ({"passages": "lines"} if document.passages else {})
                file = await patiently(lambda: client.send_text(f"{number}.txt", text, metadata))
                files[file["file_id"]] = document
                step()

            await at_once(send, enumerate(documents))
        most = await self._settle(client, screen, files)
        if documents[0].passages:
            await self._find_passages(client, screen, files)
        elif most > 1:
            self.top_n = 50

    async def _settle(self, client: CauceClient, screen: Screen, files: dict[int, Document]) -> int:
        """Wait until all are final. Return the most chunks that one of them has."""
        settled: set[int] = set()
        most = 0
        with screen.counting("processed", len(files)) as step:
            while len(settled) < len(files):
                async for file in client.files():
                    if file["status"] not in FINAL or file["file_id"] in settled:
                        continue
                    document = files[file["file_id"]]
                    if file["error_code"]:
                        raise CommandError(
                            "DOCUMENT_FAILED",
                            f"{file['error_code']}: {file['error_message']}",
                            where=f"document {document.id}",
                            remedy="mend the document or leave it out",
                        )
                    self.chunks += file["chunks"]
                    self.empty += not file["chunks"]
                    most = max(most, file["chunks"])
                    self._documents[file["file_id"]] = document.id
                    settled.add(file["file_id"])
                    step()
                await asyncio.sleep(POLL_SECONDS if len(settled) < len(files) else 0)
        return most

    async def _find_passages(self, client: CauceClient, screen: Screen, files: dict[int, Document]) -> None:
        """Tell which passage each chunk is of: a long one has several."""
        with screen.counting("read", len(files)) as step:

            async def read(item: tuple[int, Document]) -> None:
                file_id, document = item
                chunks = (await patiently(lambda: client.chunks(file_id, pages=None)))["chunks"]
                places = passages_of([chunk["text"] for chunk in chunks], document)
                for chunk, place in zip(chunks, places, strict=True):
                    self._passages[file_id, chunk["position"]] = document.unit_ids[place]
                step()

            await at_once(read, files.items())

    async def remove(self, client: CauceClient, screen: Screen) -> None:
        """Delete all that was sent, however far it came."""
        sent = [file["file_id"] async for file in client.files() if file["metadata"].get(MARK) == client.scratch]
        with screen.counting("removed", len(sent)) as step:

            async def delete(file_id: int) -> None:
                await patiently(lambda: client.delete(file_id))
                step()

            await at_once(delete, sent)


def passages_of(chunks: Sequence[str], document: Document) -> list[int]:
    """Which passage each of the document's chunks is of, given in order; the last chunk of a passage ends it.

    Raises:
        CommandError: ``PASSAGES_CHANGED``, a chunk is of none.
    """
    passages = [_visible(passage) for passage in document.passages]
    places = []
    at = start = 0
    for chunk in map(_visible, chunks):
        while at < len(passages) and (found := passages[at].find(chunk, start)) < 0:
            at, start = at + 1, 0
        if at == len(passages):
            raise CommandError(
                "PASSAGES_CHANGED",
                "what was read of its passages is not what was sent",
                where=f"document {document.id}",
                remedy="leave out of them what is no text, such as images that are written out",
            )
        places.append(at)
        start = found + 1
        if found + len(chunk) == len(passages[at]):
            at, start = at + 1, 0
    return places


def _visible(text: str) -> str:
    """What no reader changes: soft hyphens and the like go, and spaces move."""
    return "".join(sign for sign in text if sign.isprintable() and sign != " ")


@asynccontextmanager
async def scratch_documents(
    client: CauceClient, screen: Screen, documents: Sequence[Document]
) -> AsyncIterator[ScratchDocuments]:
    """The documents in the client's scratch tenant; they are removed at the end, also when the work is broken off."""
    scratch = ScratchDocuments()
    try:
        await scratch.load(client, screen, documents)
        yield scratch
    finally:
        await scratch.remove(client, screen)


async def at_once(work: Callable[[Item], Awaitable[Any]], items: Iterable[Item]) -> None:
    """Do the work on every item, a few at a time; the first fault ends it."""
    shared = iter(items)

    async def take() -> None:
        for item in shared:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(take())
    except BaseExceptionGroup as faults:
        raise faults.exceptions[0] from faults


async def patiently(call: Callable[[], Awaitable[Result]]) -> Result:
    """Call, again where the fault may pass in a moment."""
    for _ in range(TRIES - 1):
        try:
            return await call()
        except CommandError as error:
            if not error.passing and error.code != "TOO_MANY_REQUESTS":
                raise
        await asyncio.sleep(RETRY_SECONDS)
    return await call()
