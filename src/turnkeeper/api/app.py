"""The turn API as an ASGI application (contract 1 to 3, 9 to 11, 13 and 14): parse, call, render.

Answers for the routes and for how refusals look. Holds no rules about turns and no SQL.
"""

from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from turnkeeper.api.deps import ApiDeps
from turnkeeper.api.edge import RequestEdge
from turnkeeper.api.openapi import openapi_document
from turnkeeper.api.problems import RequestRefused, not_found, problem_response
from turnkeeper.api.routes import (
    admin,
    agents,
    api_keys,
    approvals,
    budgets,
    events,
    files,
    health,
    operations,
    secrets,
    sessions,
    skills,
    snapshots,
    turn_posts,
    turns,
    webhooks,
)
from turnkeeper.api.routes.unbuilt import fallback_router
from turnkeeper.api.scopes import require_scopes
from turnkeeper.errors import TurnkeeperError


def build_api(deps: ApiDeps) -> FastAPI:
    """The application. `/acs` is mounted beside it by whoever serves both."""
    app = FastAPI(
        title="Turnkeeper", docs_url=None, redoc_url=None, openapi_url="/openapi.json", redirect_slashes=False
    )
    app.state.deps = deps
    built = (
        agents,
        sessions,
        turns,
        approvals,
        events,
        webhooks,
        api_keys,
        snapshots,
        turn_posts,
        budgets,
        operations,
        secrets,
        skills,
        admin,
        files,
    )
    routers = tuple(module.router for module in built)
    require_scopes(routers)
    for router in (health.router, *routers, fallback_router(routers)):
        app.include_router(router)
    app.add_middleware(RequestEdge, ids=deps.ids)
    app.add_exception_handler(TurnkeeperError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_http)
    app.add_exception_handler(RequestValidationError, _refuse_values)
    generate = app.openapi
    app.openapi = lambda: openapi_document(app, generate)
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    return problem_response(cast("TurnkeeperError", error), request_id=_request_id(request))


async def _refuse_http(request: Request, error: Exception) -> Response:
    # Starlette's own: no route for the path, or none for the method.
    raised = cast("HTTPException", error)
    headers = dict(raised.headers or {})
    if raised.status_code == 404:
        refusal = not_found(f"endpoint {request.url.path[:200]}")
    elif raised.status_code == 405:
        refusal = RequestRefused(
            "method_not_allowed", f"This path does not take {request.method[:20]}.", headers=headers
        )
    else:
        refusal = RequestRefused("invalid_request", "The request cannot be served.")
    return problem_response(refusal, request_id=_request_id(request))


async def _refuse_values(request: Request, _error: Exception) -> Response:
    return problem_response(
        RequestRefused("invalid_field", "A value in the path or query is not valid."), request_id=_request_id(request)
    )


def _request_id(request: Request) -> str:
    return cast("dict[str, Any]", request.scope["state"])["request_id"]
