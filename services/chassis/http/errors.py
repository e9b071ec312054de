"""Errors on the wire: RFC 9457 problem details with a stable ``code``, and where and what to do when known."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from services.chassis.kernel.errors import (
    CauceError,
    ConflictError,
    GoneError,
    IncompleteInputError,
    InvalidInputError,
    NotFoundError,
    ScopeError,
    TooLargeError,
    UnavailableError,
)
from services.chassis.kernel.text import sanitise
from services.chassis.observability.logs import get_logger
from services.chassis.postgres.faults import DRIVER_FAULTS, NOT_MIGRATED, schema_missing

PROBLEM_JSON = "application/problem+json"

_STATUS: dict[type[CauceError], int] = {
    InvalidInputError: 422,
    NotFoundError: 404,
    GoneError: 410,
    ConflictError: 409,
    TooLargeError: 413,
    ScopeError: 403,
    IncompleteInputError: 408,
    UnavailableError: 503,
}

_CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 408: "BODY_INCOMPLETE", 413: "BODY_TOO_LARGE"}

_log = get_logger(__name__)


class Problem(BaseModel):
    """The body of every error answer (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    where: str | None = None
    remedy: str | None = None


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": "Problem details", "content": {PROBLEM_JSON: {"schema": Problem.model_json_schema()}}}
    for status in ("4XX", "5XX")
}
"""For the OpenAPI document of every service."""


def status_of(error: CauceError) -> int:
    """The HTTP status of an error; 500 for one that no caller should see."""
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)


def problem(error: CauceError, status: int | None = None) -> JSONResponse:
    """Render an error."""
    status = status or status_of(error)
    body = Problem(
        title=error.code.replace("_", " ").capitalize(),
        status=status,
        code=error.code,
        detail=sanitise(error.message),
        where=sanitise(error.where) if error.where else None,
        remedy=error.remedy,
    )
    headers = {}
    if isinstance(error, UnavailableError):
        headers["Retry-After"] = str(max(1, round(error.retry_after or 1)))
    return JSONResponse(body.model_dump(), status, headers, PROBLEM_JSON)


def install(app: FastAPI) -> None:
    """Render every error of the application as a problem."""

    @app.exception_handler(CauceError)
    async def on_cauce_error(_: Request, error: CauceError) -> JSONResponse:
        if status_of(error) >= 500 and not isinstance(error, UnavailableError):
            _log.error("request_failed", code=error.code, error=error.message)
        return problem(error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid_request(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return problem(InvalidInputError("INVALID_REQUEST", str(first["msg"]), where=_path(first["loc"])))

    @app.exception_handler(HTTPException)
    async def on_http_exception(_: Request, error: HTTPException) -> JSONResponse:
        code = _CODES.get(error.status_code, "INVALID_REQUEST")
        answer = problem(CauceError(code, str(error.detail)), error.status_code)
        answer.headers.update(error.headers or {})
        return answer

    async def on_database_fault(_: Request, error: Exception) -> JSONResponse:
        _log.warning("database_unavailable", error=f"{type(error).__name__}: {error}")
        away = UnavailableError("DATABASE_UNAVAILABLE", "the database does not answer", remedy="try again")
        return problem(schema_missing(error) or away)

    for kind in (*DRIVER_FAULTS, *NOT_MIGRATED, ConnectionError, TimeoutError):
        app.add_exception_handler(kind, on_database_fault)

    @app.exception_handler(Exception)
    async def on_unexpected(_: Request, error: Exception) -> JSONResponse:
        _log.error("unexpected_error", exc_info=error)
        return problem(CauceError("INTERNAL_ERROR", "an unexpected fault; it is in the service's log"), 500)


def _path(location: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in location)
