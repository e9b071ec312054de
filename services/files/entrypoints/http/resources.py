"""The routes under ``/resources``: the catalogue. Each type's name and fields come from its declaration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from services.chassis.http.app import CallerScope
from services.chassis.http.parameters import WholeNumber
from services.chassis.kernel.errors import CauceError, IncompleteInputError, InvalidInputError, UnavailableError
from services.chassis.postgres.faults import DATABASE_AWAY
from services.chassis.resource_types import Field as DeclaredField
from services.chassis.resource_types import FieldKind, ResourceType
from services.files.application.delete_resource import DeleteResource
from services.files.application.get_resource import GetResource
from services.files.application.import_resources import MAX_LISTED_ERRORS, ImportReport, ImportResources, Row
from services.files.application.list_resources import MAX_PAGE, ListResources, ResourcePage
from services.files.application.put_resource import PutResource
from services.files.application.retry_resource import RetryResource
from services.files.domain.resource import MAX_NAME_CHARACTERS, MAX_RESOURCE_ID, Outcome, Resource
from services.files.entrypoints.http.bodies import BodySlots, Pace, body_chunks
from services.files.entrypoints.http.streaming import json_body, parse_json

MAX_RESOURCE_BYTES = 1024 * 1024
"""The most that one definition may have as JSON."""
MAX_IMPORTS = 4
"""Batches at once."""

_ID_SCHEMA = {"type": "integer", "minimum": 1, "maximum": MAX_RESOURCE_ID}


class ResourceBody(BaseModel):
    """A resource as it is stored, with the fields of its type."""

    model_config = ConfigDict(extra="allow")

    type: str
    id: int
    name: str
    revision: int = Field(description="grows with every change, over all resources")
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, type_name: str, resource: Resource) -> Self:
        """Render a resource."""
        definition = resource.definition
        return cls(
            type=type_name,
            id=definition.resource_id,
            name=definition.name,
            revision=resource.revision,
            created_at=resource.created_at,
            updated_at=resource.updated_at,
            **definition.values,
        )


class ResourcePageBody(BaseModel):
    """Resources in order of id."""

    resources: list[ResourceBody]
    next: int | None = Field(description="the value of ``after`` for the next page; null on the last")

    @classmethod
    def of(cls, type_name: str, page: ResourcePage) -> Self:
        """Render a page."""
        return cls(resources=[ResourceBody.of(type_name, one) for one in page.resources], next=page.next_after)


class RowErrorBody(BaseModel):
    """A row that was not applied, and why."""

    line: int = Field(description="counted from 1")
    id: int | None
    code: str
    detail: str
    where: str | None


class ImportReportBody(BaseModel):
    """What became of a batch."""

    created: int
    updated: int
    unchanged: int = Field(description="were there already as they were sent, or were not there to be deleted")
    deleted: int
    failed: int
    errors: list[RowErrorBody]
    errors_not_listed: int = Field(description=f"failed rows beyond the {MAX_LISTED_ERRORS:,} that are listed")

    @classmethod
    def of(cls, report: ImportReport) -> Self:
        """Render a report."""
        return cls(
            created=report.outcomes[Outcome.CREATED],
            updated=report.outcomes[Outcome.UPDATED],
            unchanged=report.outcomes[Outcome.UNCHANGED],
            deleted=report.outcomes[Outcome.DELETED],
            failed=report.failed,
            errors=[
                RowErrorBody(line=one.line, id=one.resource_id, code=one.code, detail=one.detail, where=one.where)
                for one in report.errors
            ],
            errors_not_listed=report.failed - len(report.errors),
        )


@dataclass(frozen=True, slots=True)
class CatalogueSurface:
    """The use cases that the routes call, and the bounds that they keep."""

    put: PutResource
    get: GetResource
    delete: DeleteResource
    list: ListResources
    retry: RetryResource
    import_: ImportResources
    import_slots: BodySlots
    pace: Pace


def _surface(request: Request) -> CatalogueSurface:
    surface: CatalogueSurface = request.app.state.catalogue
    return surface


Surface = Annotated[CatalogueSurface, Depends(_surface)]
TypeName = Annotated[str, Path(alias="type", description="A type of resource. To an unknown one the known are told.")]
ResourceId = Annotated[WholeNumber, Path(alias="id", description="The source's own id, from 1 to 2^63-1.")]


def resources_router(types: Mapping[str, ResourceType]) -> APIRouter:
    """The routes, described with the types that there are."""
    router = APIRouter(prefix="/resources", tags=["resources"])
    definitions = [_definition_schema(type_) for type_ in types.values()]
    row = {
        "type": "string",
        "description": 'A JSON object a line: an "id" and a definition, or {"id": 1, "deleted": true}.',
    }
    router.put(
        "/{type}/{id}",
        responses={201: {"model": ResourceBody, "description": "There was no such resource; now there is"}},
        openapi_extra=_body("application/json", {"oneOf": definitions}),
    )(put_resource)
    router.get("/{type}/{id}")(get_resource)
    router.delete("/{type}/{id}", status_code=204)(delete_resource)
    router.post("/{type}/{id}/retry", status_code=202)(retry_resource)
    router.get("/{type}")(list_resources)
    router.post("/{type}:batch", openapi_extra=_body("application/x-ndjson", row))(import_resources)
    return router


async def put_resource(
    *,
    type_name: TypeName,
    resource_id: ResourceId,
    request: Request,
    response: Response,
    scope: CallerScope,
    catalogue: Surface,
) -> ResourceBody:
    """Put a definition in the place of the one that is there, if any: a field that is left out becomes null.

    A name that is left out becomes the type and the id. What is there already as it is sent is not changed, and
    nothing is announced.
    """
    body = await json_body(body_chunks(request, catalogue.pace), MAX_RESOURCE_BYTES)
    resource, outcome = await catalogue.put(scope, type_name, resource_id, body)
    response.status_code = 201 if outcome is Outcome.CREATED else 200
    return ResourceBody.of(type_name, resource)


async def get_resource(
    type_name: TypeName, resource_id: ResourceId, scope: CallerScope, catalogue: Surface
) -> ResourceBody:
    """A resource as it is now."""
    return ResourceBody.of(type_name, await catalogue.get(scope, type_name, resource_id))


async def delete_resource(type_name: TypeName, resource_id: ResourceId, scope: CallerScope, catalogue: Surface) -> None:
    """Delete a resource, with all that was made of it."""
    await catalogue.delete(scope, type_name, resource_id)


async def retry_resource(type_name: TypeName, resource_id: ResourceId, scope: CallerScope, catalogue: Surface) -> None:
    """Have a resource looked at again, under a new revision: what failed is embedded, a text with a vector keeps it."""
    await catalogue.retry(scope, type_name, resource_id)


async def list_resources(
    type_name: TypeName,
    scope: CallerScope,
    catalogue: Surface,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    after: Annotated[int | None, Query(ge=1, le=MAX_RESOURCE_ID, description="the ``next`` of the page before")] = None,
) -> ResourcePageBody:
    """The resources of a type in order of id, a page at a time."""
    return ResourcePageBody.of(type_name, await catalogue.list(scope, type_name, limit=limit, after=after))


async def import_resources(
    type_name: TypeName, request: Request, scope: CallerScope, catalogue: Surface
) -> ImportReportBody:
    """Put and delete as many resources as the body has lines, in the order of the lines.

    The body is read as it comes and applied some hundred rows at a time; a bad row is reported and the others go on.
    When the body breaks off, what was applied stays: sending it again does no harm.
    """
    report = ImportReport()
    with catalogue.import_slots.take(request) as body:
        try:
            await catalogue.import_(scope, type_name, _rows(body), report)
        except IncompleteInputError as error:
            raise IncompleteInputError(error.code, _how_far(error.message, report), where=error.where) from error
        except DATABASE_AWAY as error:
            fault = _how_far("the database does not answer", report)
            raise UnavailableError("DATABASE_UNAVAILABLE", fault, remedy="send the batch again") from error
    return ImportReportBody.of(report)


def _body(media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


def _how_far(fault: str, report: ImportReport) -> str:
    return f"{fault}; {report.applied} rows were applied before and stay so, {report.failed} were refused"


async def _rows(body: AsyncIterator[bytes]) -> AsyncIterator[Row]:
    """The body's lines as JSON; blank ones are left out, and one that is too long is never whole in memory."""
    number = 0
    async for line in _lines(body, MAX_RESOURCE_BYTES):
        number += 1
        if line is None:
            yield Row(number, _bad_row(f"the line has more than {MAX_RESOURCE_BYTES} bytes"))
        elif not line.isspace() and line:
            yield Row(number, _parse(line), len(line))


async def _lines(body: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes | None]:
    """What stands before each line feed, and after the last one; None for a line of more bytes."""
    line, too_long = bytearray(), False
    async for chunk in body:
        first, *others = chunk.split(b"\n")
        line += first
        for other in others:
            yield None if too_long or len(line) > max_bytes else bytes(line)
            line, too_long = bytearray(other), False
        if len(line) > max_bytes:
            line, too_long = bytearray(), True
    if line or too_long:
        yield None if too_long else bytes(line)


def _parse(line: bytes) -> Any | CauceError:
    try:
        return parse_json(line.decode(), "row")
    except UnicodeDecodeError:
        return _bad_row("the line is not UTF-8")
    except InvalidInputError as error:
        return error


def _bad_row(message: str) -> InvalidInputError:
    return InvalidInputError("INVALID_REQUEST", message, where="row")


def _definition_schema(type_: ResourceType) -> dict[str, Any]:
    fields = {field.name: _field_schema(field) | {"description": field.description} for field in type_.fields}
    name = {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_NAME_CHARACTERS}
    return {
        "title": type_.name,
        "description": type_.description,
        "type": "object",
        "properties": {"name": name, **fields},
        "additionalProperties": False,
    }


def _field_schema(field: DeclaredField) -> dict[str, Any]:
    text = {"type": "string", "maxLength": MAX_NAME_CHARACTERS}
    schemas: Mapping[FieldKind, dict[str, Any]] = {
        FieldKind.TEXT: {"type": "string", "maxLength": field.max_length},
        FieldKind.INTEGER: {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
        FieldKind.NUMBER: {"type": "number"},
        FieldKind.BOOLEAN: {"type": "boolean"},
        FieldKind.TIMESTAMP: {"type": "string", "format": "date-time"},
        FieldKind.REFERENCE: _ID_SCHEMA,
        FieldKind.REFERENCES: {"type": "array", "items": _ID_SCHEMA, "maxItems": field.max_length},
        FieldKind.TEXTS: {"type": "array", "items": text, "maxItems": field.max_length},
    }
    schema = schemas[field.kind]
    return schema | {"type": [schema["type"], "null"]}
