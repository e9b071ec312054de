"""The services as the command uses them: streamed uploads, followed progress, followed pages.

Every fault is a ``CommandError`` with the service's own code, or with one that says which service is away.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote
from uuid import uuid4

import httpx2

from cli.addresses import Addresses
from cli.errors import CommandError

Answer: TypeAlias = dict[str, Any]
"""A JSON object as the service sent it, so that a field of a newer service reaches the caller."""

FINAL = ("COMPLETED", "FAILED")

_BLOCK_BYTES = 1 << 20
_PAGE = 500
_RECONNECT_SECONDS = 0.5
_AWAY_SECONDS = 60.0
_REPEAT_SECONDS = (0.5, 1.0, 2.0)
_BUSY = "TOO_MANY_REQUESTS"
_TIMEOUT = httpx2.Timeout(60, connect=5)
_SCRATCH_HEADER = "cauce-scratch"
_LOOPBACK = ("all://127.0.0.1", "all://localhost", "all://[::1]")


@asynccontextmanager
async def open_http(scratch: str | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client; loopback addresses never go through a proxy.

    ``scratch`` names the scratch tenant to work in, in place of the stack's own tenant.
    """
    headers = {} if scratch is None else {_SCRATCH_HEADER: scratch}
    async with httpx2.AsyncClient(timeout=_TIMEOUT, mounts=dict.fromkeys(_LOOPBACK), headers=headers) as http:
        yield http


class CauceClient:
    """Calls the services."""

    def __init__(self, http: httpx2.AsyncClient, addresses: Addresses) -> None:
        self._http = http
        self._files = f"{addresses.files_url.rstrip('/')}/files"
        self._search = f"{addresses.search_url.rstrip('/')}/api/web/embeddings/files"
        self._resources = f"{addresses.files_url.rstrip('/')}/resources"
        self._search_all = f"{addresses.search_url.rstrip('/')}/api/web/embeddings/search"
        self._context = f"{addresses.search_url.rstrip('/')}/api/web/embeddings/context"
        self._embeddings = addresses.embeddings_url
        self.scratch: str | None = http.headers.get(_SCRATCH_HEADER)

    async def create_file(self, name: str) -> Answer:
        """Announce a file; it has its id before a byte is sent. The service guesses the media type.

        Repeats what got no answer, or was refused for now, under one key: there is never a second file.
        """
        key = {"Idempotency-Key": uuid4().hex}
        for delay in _REPEAT_SECONDS:
            try:
                return await self._send_json("POST", self._files, {"name": name}, key)
            except CommandError as error:
                if not error.passing or isinstance(error.__cause__, httpx2.ConnectError):
                    raise
            await asyncio.sleep(delay)
        return await self._send_json("POST", self._files, {"name": name}, key)

    async def send_text(self, name: str, text: str, metadata: Answer) -> Answer:
        """Send a plain text as a file."""
        fields = {"metadata": json.dumps(metadata)}
        return await self._call("POST", self._files, data=fields, files={"file": (name, text.encode(), "text/plain")})

    async def send_content(self, file_id: int, path: Path, on_sent: Callable[[int, int], None]) -> Answer:
        """Stream a file's bytes from disk. ``on_sent`` gets the bytes that have left, and all.

        Raises:
            CommandError: the service's code when it refused the bytes, even if it hung up instead of answering.
            OSError: the file cannot be read.
        """
        with path.open("rb") as source:
            size = os.fstat(source.fileno()).st_size

            async def blocks() -> AsyncIterator[bytes]:
                on_sent(0, size)
                while block := await asyncio.to_thread(source.read, _BLOCK_BYTES):
                    yield block
                    on_sent(source.tell(), size)

            headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
            try:
                return await self._call("PUT", f"{self._files}/{file_id}/content", content=blocks(), headers=headers)
            except CommandError as error:
                if isinstance(error.__cause__, httpx2.LocalProtocolError):
                    raise CommandError("FILE_CHANGED", "the file changed while it was sent") from error
                if isinstance(error.__cause__, httpx2.TransportError):
                    refused = await self.file(file_id)
                    if refused["error_code"]:
                        raise CommandError(refused["error_code"], refused["error_message"]) from error
                raise

    async def file(self, file_id: int) -> Answer:
        """A file and how far it is."""
        return await self._call("GET", f"{self._files}/{file_id}")

    async def files(self) -> AsyncIterator[Answer]:
        """All files, newest first."""
        after: int | None = None
        while True:
            page = await self._call("GET", self._files, params=_given(limit=_PAGE, after=after))
            for file in page["files"]:
                yield file
            if (after := page["next"]) is None:
                return

    async def wait_for(self, file_id: int, on_change: Callable[[Answer], None]) -> Answer:
        """Follow a file until it is COMPLETED or FAILED, over interruptions of up to a minute.

        ``on_change`` gets every state on the way, and the last.
        """
        clock = asyncio.get_running_loop().time
        away_since: float | None = None
        while True:
            try:
                async with aclosing(self._events(file_id)) as events:
                    async for file in events:
                        away_since = None
                        on_change(file)
                        if file["status"] in FINAL:
                            return file
            except CommandError as error:
                away_since = clock() if away_since is None or error.code == _BUSY else away_since
                if not error.passing or clock() - away_since > _AWAY_SECONDS:
                    raise
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def retry(self, file_id: int) -> Answer:
        """Process a file again."""
        return await self._call("POST", f"{self._files}/{file_id}/retry")

    async def delete(self, file_id: int) -> None:
        """Delete a file with all that was made of it."""
        await self._call("DELETE", f"{self._files}/{file_id}")

    async def search(self, query: str, parameters: Mapping[str, object]) -> Answer:
        """The passages that mean or say what is asked for; what is None is left to the service's default."""
        return await self.ask({"query": query} | _given(**parameters))

    async def ask(self, body: Answer) -> Answer:
        """The passages that a request to the search finds; its parameters are the service's."""
        return await self._send_json("POST", f"{self._search}/search", body)

    async def context(self, query: str, parameters: Mapping[str, object]) -> Answer:
        """What to quote in a prompt, within a budget of tokens; what is None is left to the service's default."""
        return await self._send_json("POST", self._context, {"query": query} | _given(**parameters))

    async def chunks(self, file_id: int, *, pages: str | None) -> Answer:
        """All chunks of a file, or those on ``pages``, in order: every page of the answer as one."""
        url = f"{self._search}/{file_id}/chunks"
        answer = page = await self._call("GET", url, params=_given(pages=pages, limit=_PAGE))
        while (after := page["next"]) is not None:
            page = await self._call("GET", url, params=_given(pages=pages, limit=_PAGE, after=after))
            answer["chunks"] += page["chunks"]
        del answer["next"]
        return answer

    async def put_resource(self, type_: str, resource_id: int, definition: Answer) -> Answer:
        """Put the definition of a resource in the place of the one that is there, if any."""
        return await self._send_json("PUT", f"{self._resource_type(type_)}/{resource_id}", definition)

    async def resource(self, type_: str, resource_id: int) -> Answer:
        """A resource as it is stored."""
        return await self._call("GET", f"{self._resource_type(type_)}/{resource_id}")

    async def delete_resource(self, type_: str, resource_id: int) -> None:
        """Delete a resource with all that was made of it."""
        await self._call("DELETE", f"{self._resource_type(type_)}/{resource_id}")

    async def retry_resource(self, type_: str, resource_id: int) -> None:
        """Have a resource looked at again."""
        await self._call("POST", f"{self._resource_type(type_)}/{resource_id}/retry")

    async def resources(self, type_: str) -> AsyncIterator[Answer]:
        """All resources of a type, in order of id."""
        after: int | None = None
        while True:
            page = await self._call("GET", self._resource_type(type_), params=_given(limit=_PAGE, after=after))
            for resource in page["resources"]:
                yield resource
            if (after := page["next"]) is None:
                return

    async def import_resources(self, type_: str, path: Path) -> Answer:
        """Stream a file of JSON lines from disk. Return the report.

        Raises:
            CommandError: the service's code; an unknown type is refused before a byte is sent.
            OSError: the file cannot be read.
        """
        with path.open("rb") as source:

            async def blocks() -> AsyncIterator[bytes]:
                while block := await asyncio.to_thread(source.read, _BLOCK_BYTES):
                    yield block

            # A service that refuses a body hangs up on it, and its answer may be lost.
            await self._call("GET", self._resource_type(type_), params={"limit": 1})
            headers = {"Content-Type": "application/x-ndjson"}
            return await self._call("POST", f"{self._resource_type(type_)}:batch", content=blocks(), headers=headers)

    async def search_resources(self, query: str, parameters: Mapping[str, object]) -> Answer:
        """The resources that mean or say what is asked for; what is None is left to the service's default."""
        return await self._send_json("POST", self._search_all, {"query": query} | _given(**parameters))

    async def sweep(self) -> Answer:
        """Look for what is missing, stale, orphaned or stuck in the index, and have it repaired. Return the counts."""
        return await self._call("POST", f"{self._embeddings_url}/sweep")

    async def spaces(self) -> list[Answer]:
        """The embedding spaces that have vectors, the active one first."""
        return _spaces_of(await self._call("GET", f"{self._embeddings_url}/reindex"))

    async def build_space(self, space: str, texts_per_minute: int | None) -> list[Answer]:
        """Have a space built beside the active one."""
        wanted = {"space": space} | _given(textsPerMinute=texts_per_minute)
        return _spaces_of(await self._send_json("POST", f"{self._embeddings_url}/reindex", wanted))

    async def change_space(self, change: Literal["swap", "rollback"]) -> list[Answer]:
        """Make the space beside the active one the active one, or go back to it."""
        return _spaces_of(await self._call("POST", f"{self._embeddings_url}/reindex/{change}"))

    async def drop_space(self) -> list[Answer]:
        """Give up the space beside the active one."""
        return _spaces_of(await self._call("DELETE", f"{self._embeddings_url}/reindex"))

    async def dead_letters(self) -> AsyncIterator[Answer]:
        """All records that were set aside, without what they hold."""
        after: str | None = None
        while True:
            url = f"{self._embeddings_url}/dead-letters"
            page = await self._call("GET", url, params=_given(limit=_PAGE, after=after))
            for letter in page["dead_letters"]:
                yield letter
            if (after := page["next"]) is None:
                return

    async def dead_letter(self, partition: int, offset: int) -> Answer:
        """A record that was set aside, with all that it came with."""
        return await self._call("GET", f"{self._embeddings_url}/dead-letters/{partition}/{offset}")

    async def replay(self, partition: int, offset: int) -> Answer:
        """Send a record that was set aside to where it came from. Return what became of it."""
        return await self._call("POST", f"{self._embeddings_url}/dead-letters/{partition}/{offset}/replay")

    @property
    def _embeddings_url(self) -> str:
        if self._embeddings is None:
            raise CommandError(
                "STACK_NOT_FOUND",
                "the address of the embeddings service is not known",
                remedy="set CAUCE_EMBEDDINGS_URL",
            )
        return self._embeddings.rstrip("/")

    def _resource_type(self, type_: str) -> str:
        return f"{self._resources}/{quote(type_, safe='', errors='backslashreplace')}"

    async def _events(self, file_id: int) -> AsyncGenerator[Answer, None]:
        url = f"{self._files}/{file_id}/events"
        try:
            async with self._http.sse(url) as source:
                if source.response.is_error:
                    await source.response.aread()
                    raise _refusal(source.response)
                async for event in source:
                    if event.event == "status":
                        yield json.loads(event.data)
        except httpx2.TransportError as fault:
            raise _away(url, fault) from fault

    async def _send_json(self, method: str, url: str, body: Answer, headers: Answer | None = None) -> Answer:
        # Escaped, because a text of the command line may hold what UTF-8 cannot: the service says so by its code.
        content = json.dumps(body).encode()
        return await self._call(
            method, url, content=content, headers={"Content-Type": "application/json"} | (headers or {})
        )

    async def _call(self, method: str, url: str, **request: Any) -> Answer:
        try:
            response = await self._http.request(method, url, **request)
        except (httpx2.TransportError, httpx2.InvalidURL) as fault:
            raise _away(url, fault) from fault
        if not response.is_success:
            raise _refusal(response)
        if not response.content:
            return {}
        try:
            answer: Answer = response.json()
        except ValueError as fault:
            raise CommandError("UNEXPECTED_ANSWER", "the service did not answer with JSON", where=url) from fault
        return answer


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _away(url: str, fault: Exception) -> CommandError:
    detail = f"the service does not answer: {str(fault) or type(fault).__name__}"
    return CommandError("SERVICE_UNREACHABLE", detail, where=url, remedy="is the stack running?", passing=True)


def _refusal(response: httpx2.Response) -> CommandError:
    passing = response.status_code in {502, 503, 504}
    try:
        problem = response.json()
        code, detail, where, remedy = problem["code"], problem["detail"], problem.get("where"), problem.get("remedy")
    except (ValueError, KeyError, TypeError):
        detail = f"the service answered {response.status_code} {response.reason_phrase}"
        code, where, remedy = "UNEXPECTED_ANSWER", str(response.url), None
    return CommandError(code, detail, where=where, remedy=remedy, passing=passing)


def _spaces_of(answer: Answer) -> list[Answer]:
    spaces: list[Answer] = answer["spaces"]
    return spaces
