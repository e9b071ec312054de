"""The FastAPI application that every service starts from: errors, health, metrics, traces and the caller's scope."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel

from services.chassis.http import errors
from services.chassis.http.request_limit import RequestLimit
from services.chassis.kernel.errors import InvalidInputError, ScopeError
from services.chassis.kernel.scope import AccessScope
from services.chassis.settings import HttpSettings

SCRATCH_HEADER = "cauce-scratch"

_SCRATCH_NAME = re.compile(r"[a-z0-9-]{1,40}", re.ASCII)

HealthCheck = Callable[[], Awaitable[str | None]]
"""A readiness check: the fault in a few words, or None when all is well."""


def create_app(
    title: str,
    *,
    service: str,
    settings: HttpSettings,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
    checks: Callable[[], Mapping[str, HealthCheck]],
) -> FastAPI:
    """Build the application.

    Args:
        title: for the OpenAPI document.
        service: ``files``, ``embeddings`` or ``search``.
        settings: addresses and the tenant that callers belong to.
        lifespan: opens and closes what the service needs.
        checks: the readiness checks by name, asked for at each probe.
    """
    app = FastAPI(
        title=title,
        version="1",
        lifespan=lifespan,
        dependencies=[Depends(reject_unknown_query)],
        responses=errors.ERROR_RESPONSES,
    )
    app.state.http_settings = settings
    app.state.stopping = False
    errors.install(app)

    @app.get("/", tags=["operations"])
    async def addresses() -> dict[str, str | None]:
        """The service's name, and where the three services are reached."""
        return {
            "service": service,
            "files_url": settings.files_url,
            "embeddings_url": settings.embeddings_url,
            "search_url": settings.search_url,
        }

    _add_operations(app, checks)
    app.add_middleware(RequestLimit, most=settings.max_requests)
    FastAPIInstrumentor.instrument_app(app, excluded_urls="/health/.*,/metrics", exclude_spans=["receive", "send"])
    return app


def operations_app(
    title: str, checks: Callable[[], Mapping[str, HealthCheck]], waits: Callable[[], Awaitable[Mapping[str, str]]]
) -> FastAPI:
    """Health and metrics alone, for a process that serves nobody.

    ``waits`` tells by name of what the process waits for, though it is ready itself.
    """
    app = FastAPI(title=title, openapi_url=None)
    _add_operations(app, checks, waits)
    return app


def _add_operations(
    app: FastAPI,
    checks: Callable[[], Mapping[str, HealthCheck]],
    waits: Callable[[], Awaitable[Mapping[str, str]]] | None = None,
) -> None:
    @app.get("/health/live", tags=["operations"])
    async def live() -> dict[str, str]:
        """The process answers."""
        return {"status": "live"}

    @app.get("/health/ready", tags=["operations"])
    async def ready() -> JSONResponse:
        """Everything that the service depends on works; otherwise 503 and the faults by name."""
        faults = {name: fault for name, check in checks().items() if (fault := await _run(check)) is not None}
        answer: dict[str, Any] = {"status": "not ready" if faults else "ready", "faults": faults}
        if waits is not None:
            answer["waits"] = await waits()
        return JSONResponse(answer, 503 if faults else 200)

    @app.get("/metrics", tags=["operations"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics in the Prometheus text format."""
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


async def caller_scope(
    request: Request,
    scratch: Annotated[
        str | None,
        Header(
            alias=SCRATCH_HEADER,
            description="Work in a scratch tenant of this name, where the stack allows it: it sees its own data only.",
        ),
    ] = None,
) -> AccessScope:
    """The scope of the caller: the stack's one tenant, or a scratch tenant under it. Without one all is refused."""
    settings: HttpSettings = request.app.state.http_settings
    if settings.tenant is None:
        raise ScopeError("SCOPE_MISSING", "no access scope is known for this caller", remedy="set CAUCE_TENANT")
    if scratch is None:
        return AccessScope(settings.tenant)
    if not settings.scratch_tenants:
        raise ScopeError(
            "SCRATCH_REFUSED",
            "this stack has no scratch tenants",
            where=f"header.{SCRATCH_HEADER}",
            remedy="set CAUCE_SCRATCH_TENANTS=true for its services, or use a stack of your own",
        )
    if _SCRATCH_NAME.fullmatch(scratch) is None:
        raise InvalidInputError(
            "INVALID_REQUEST",
            "this is no name of a scratch tenant",
            where=f"header.{SCRATCH_HEADER}",
            remedy="write 1 to 40 lower-case letters, digits and hyphens",
        )
    return AccessScope(f"{settings.tenant}/scratch/{scratch}")


CallerScope = Annotated[AccessScope, Depends(caller_scope)]


async def reject_unknown_query(request: Request) -> None:
    """Refuse query parameters that the route does not declare: a misspelt filter must not be ignored."""
    route = request.scope.get("route")
    known = _query_names(getattr(route, "dependant", None))
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        raise InvalidInputError(
            "INVALID_REQUEST",
            f"unknown query parameter: {unknown[0]!r}",
            where=f"query.{unknown[0]}",
            remedy=f"known are: {', '.join(sorted(known)) or 'none'}",
        )


def _query_names(dependant: Any) -> set[str]:
    if dependant is None:
        return set()
    names: set[str] = set()
    for parameter in dependant.query_params:
        model = parameter.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            names |= {field.alias or name for name, field in model.model_fields.items()}
        else:
            names.add(parameter.alias)
    for nested in dependant.dependencies:
        names |= _query_names(nested)
    return names


async def _run(check: HealthCheck) -> str | None:
    try:
        return await check()
    except Exception as error:  # noqa: BLE001 - whatever a probe meets is the answer
        return f"{type(error).__name__}: {error}"
