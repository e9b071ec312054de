"""The routes under ``/files``."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from opentelemetry import metrics
from pydantic import ValidationError

from services.chassis.http.app import CallerScope
from services.chassis.http.parameters import WholeNumber
from services.chassis.http.slots import Slots
from services.chassis.kernel.errors import CauceError, InvalidInputError, UnavailableError
from services.chassis.kernel.scope import AccessScope
from services.chassis.postgres.faults import DATABASE_AWAY
from services.files.application.delete_file import DeleteFile
from services.files.application.find_files import MAX_PAGE, FindFiles
from services.files.application.read_content import ReadContent
from services.files.application.receive_file import ReceiveFile
from services.files.application.register_file import RegisterFile
from services.files.application.retry_file import RetryFile
from services.files.application.store_content import StoreContent, file_too_large
from services.files.domain.description import UNKNOWN_MEDIA_TYPE, FileDescription, describe
from services.files.domain.file import MAX_FILE_ID, File
from services.files.entrypoints.http.bodies import AnswerSlots, BodySlots, Pace, body_chunks
from services.files.entrypoints.http.models import FileBody, FilePageBody, RegisterFileBody
from services.files.entrypoints.http.multipart import MAX_FIELD_BYTES, MAX_OVERHEAD_BYTES, Form, MultipartBody
from services.files.entrypoints.http.streaming import ContentResponse, EventStream, json_body, parse_json

_FORM_FIELDS = frozenset({"name", "mediaType", "metadata"})
_JSON = "application/json"
_FORM = "multipart/form-data"

_meter = metrics.get_meter("cauce")
_uploads = _meter.create_histogram("cauce.files.upload.duration", unit="s", description="Time that uploads took")


@dataclass(frozen=True, slots=True)
class FilesSurface:
    """The use cases that the routes call, and the bounds that they keep."""

    register: RegisterFile
    receive: ReceiveFile
    store: StoreContent
    find: FindFiles
    read: ReadContent
    delete: DeleteFile
    retry: RetryFile
    upload_slots: BodySlots
    stream_slots: Slots
    download_slots: AnswerSlots
    pace: Pace
    poll_seconds: float
    embeddings_url: str | None

    @contextmanager
    def upload(self, request: Request) -> Iterator[AsyncIterator[bytes]]:
        """Hold a place for an upload, and measure it: its body."""
        with self.upload_slots.take(request) as body:
            started = time.monotonic()
            outcome = "STORED"
            try:
                yield body
            except CauceError as error:
                outcome = error.code
                raise
            finally:
                _uploads.record(time.monotonic() - started, {"outcome": outcome})


def _surface(request: Request) -> FilesSurface:
    surface: FilesSurface = request.app.state.files
    return surface


Surface = Annotated[FilesSurface, Depends(_surface)]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern="^[!-~]{1,255}$",
        description="1 to 255 visible ASCII characters, new for every file; a repeat under it makes no second one",
    ),
]

router = APIRouter(prefix="/files", tags=["files"])


@router.post(
    "",
    status_code=201,
    responses={202: {"model": FileBody, "description": "The bytes are stored; processing follows"}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                _JSON: {"schema": RegisterFileBody.model_json_schema()},
                _FORM: {
                    "schema": {
                        "type": "object",
                        "description": "The fields, then the file.",
                        "properties": {
                            "name": {"type": "string", "description": "the file part's filename when left out"},
                            "mediaType": {"type": "string"},
                            "metadata": {"type": "string", "description": "a JSON object"},
                            "file": {"type": "string", "format": "binary"},
                        },
                        "required": ["file"],
                        "additionalProperties": False,
                    }
                },
            },
        }
    },
)
async def add_file(
    request: Request, response: Response, scope: CallerScope, files: Surface, key: IdempotencyKey = None
) -> FileBody:
    """Register a file, with its bytes or before them.

    JSON answers 201 with the id; the bytes follow by ``PUT /files/{file_id}/content``. multipart/form-data carries
    both and answers 202 as soon as the bytes are stored, before any processing; a refusal leaves no file.

    A request that got no answer, or 503, may have made its file. Under an ``Idempotency-Key`` a repeat makes no second
    one: it is answered with the first, as long as that is not deleted. Another file under the same key is refused with
    409 ``IDEMPOTENCY_KEY_REUSED``.
    """
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == _JSON:
        description = _description(await json_body(body_chunks(request, files.pace)))
        file = await files.register(scope, description, key)
    elif kind == _FORM:
        if (_content_length(request) or 0) > files.store.max_bytes + MAX_FIELD_BYTES + MAX_OVERHEAD_BYTES:
            raise file_too_large(files.store.max_bytes)
        with files.upload(request) as body:
            form = MultipartBody(content_type, body, _FORM_FIELDS)
            described = _description_in(await form.form())
            file = await files.receive(scope, described, form.file(), key)
        response.status_code = 202
    else:
        raise InvalidInputError(
            "INVALID_REQUEST",
            f"the body must be {_JSON} or {_FORM}",
            where="header.content-type",
        )
    response.headers["Location"] = f"/files/{file.file_id}"
    return FileBody.of(file)


@router.get("")
async def list_files(
    scope: CallerScope,
    files: Surface,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    after: Annotated[int | None, Query(ge=1, le=MAX_FILE_ID, description="the ``next`` of the page before")] = None,
) -> FilePageBody:
    """The files, newest first, a page at a time."""
    return FilePageBody.of(await files.find.page(scope, limit=limit, after=after))


@router.get("/{file_id}")
async def get_file(file_id: WholeNumber, scope: CallerScope, files: Surface) -> FileBody:
    """A file and how far it is."""
    return FileBody.of(await files.find.get(scope, file_id))


@router.get(
    "/{file_id}/events",
    status_code=200,
    response_class=EventStream,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def follow_file(file_id: WholeNumber, request: Request, scope: CallerScope, files: Surface) -> EventStream:
    """A file at every change, as server-sent events ``status``, until it is COMPLETED, FAILED or deleted."""
    file = await files.find.get(scope, file_id)
    return EventStream(_events(request, scope, files, file), files.stream_slots)


async def _events(request: Request, scope: AccessScope, files: FilesSurface, file: File) -> AsyncIterator[str]:
    """The file as events; a comment at every look that finds no change, so that a dead connection is noticed.

    Ends without a final state when the service stops or its database goes away: the caller then connects again.
    """
    try:
        async for change in files.find.watch(scope, file, every_seconds=files.poll_seconds):
            if request.app.state.stopping:
                return
            yield f"event: status\ndata: {FileBody.of(change).model_dump_json()}\n\n" if change else ":\n\n"
    except DATABASE_AWAY:
        return


@router.put(
    "/{file_id}/content",
    status_code=202,
    openapi_extra={
        "requestBody": {"content": {UNKNOWN_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
    },
)
async def put_content(file_id: WholeNumber, request: Request, scope: CallerScope, files: Surface) -> FileBody:
    """Send the bytes of a file, the first or new ones. They are the file's when all have arrived, and only then.

    The request's own content type says nothing; the file keeps the one it was registered with. An upload that stops
    leaves the file waiting for a while; then it ends FAILED, and sending the bytes again revives it.
    """
    with files.upload(request) as body:
        return FileBody.stored(await files.store(scope, file_id, body, announced_bytes=_content_length(request)))


@router.get(
    "/{file_id}/content",
    status_code=200,
    response_class=ContentResponse,
    responses={200: {"content": {UNKNOWN_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_content(file_id: WholeNumber, scope: CallerScope, files: Surface) -> ContentResponse:
    """The bytes of a file, under its declared media type."""
    return ContentResponse(*await files.read(scope, file_id), files.download_slots)


@router.get("/{file_id}/pages/{number}.png", status_code=307, response_class=RedirectResponse)
async def get_page(
    file_id: WholeNumber,
    number: WholeNumber,
    scope: CallerScope,
    files: Surface,
    size: Annotated[WholeNumber | None, Query(description="the most pixels of the longer side")] = None,
) -> RedirectResponse:
    """A page as an image: where the embeddings service, which reads documents, shows it."""
    (await files.find.get(scope, file_id)).require_content()
    return _at_embeddings(files, f"/files/{file_id}/pages/{number}.png" + ("" if size is None else f"?size={size}"))


@router.get("/{file_id}/chunks/{chunk_id}/highlight", status_code=307, response_class=RedirectResponse)
async def get_highlight(
    file_id: WholeNumber, chunk_id: WholeNumber, scope: CallerScope, files: Surface
) -> RedirectResponse:
    """Where the text of a chunk stands on its pages: where the embeddings service says it."""
    await files.find.get(scope, file_id)
    return _at_embeddings(files, f"/files/{file_id}/chunks/{chunk_id}/highlight")


@router.delete("/{file_id}", status_code=204)
async def delete_file(file_id: WholeNumber, scope: CallerScope, files: Surface) -> None:
    """Delete a file in whatever state it is, with all that was made of it."""
    await files.delete(scope, file_id)


@router.post("/{file_id}/retry", status_code=202)
async def retry_file(file_id: WholeNumber, scope: CallerScope, files: Surface) -> FileBody:
    """Have a file that is COMPLETED or FAILED processed again."""
    return FileBody.of(await files.retry(scope, file_id))


def _description(body: Any) -> FileDescription:
    try:
        checked = RegisterFileBody.model_validate(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in faults]) from error
    return describe(checked.name, checked.media_type, checked.metadata)


def _description_in(form: Form) -> FileDescription:
    """What the fields say of the file, else what its own part says. An unknown type counts as not said."""
    fields = form.fields
    part_type = None if form.media_type == UNKNOWN_MEDIA_TYPE else form.media_type
    metadata = fields.get("metadata")
    return describe(
        fields.get("name", form.file_name or ""),
        fields.get("mediaType", part_type),
        None if metadata is None else parse_json(metadata, "metadata"),
    )


def _at_embeddings(files: FilesSurface, path: str) -> RedirectResponse:
    if files.embeddings_url is None:
        raise UnavailableError(
            "PAGES_UNAVAILABLE", "nobody said where the embeddings service is", remedy="set CAUCE_EMBEDDINGS_URL"
        )
    return RedirectResponse(files.embeddings_url.rstrip("/") + path)


def _content_length(request: Request) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else None
