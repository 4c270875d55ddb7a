"""What is left: endpoints of the contract that are not built, wrong methods, and paths nobody knows."""

import re
from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from turnkeeper.api.auth import Caller
from turnkeeper.api.problems import RequestRefused, not_found
from turnkeeper.api.unbuilt import is_unbuilt_endpoint

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def fallback_router(built: Sequence[APIRouter]) -> APIRouter:
    """A router for every `/v1` path that the built ones do not serve. Include it last."""
    table = [
        (route.path_regex, frozenset(route.methods or ()))
        for router in built
        for route in router.routes
        if isinstance(route, APIRoute)
    ]
    router = APIRouter(include_in_schema=False)

    @router.api_route("/v1/{rest:path}", methods=list(METHODS))
    async def refuse(rest: str, request: Request, _caller: Caller) -> Response:  # pyright: ignore[reportUnusedFunction]
        raise _refusal(f"/v1/{rest}", request.method, table)

    return router


def _refusal(path: str, method: str, table: list[tuple[re.Pattern[str], frozenset[str]]]) -> RequestRefused:
    shown = path[:200]
    if is_unbuilt_endpoint(method, path):
        return RequestRefused(
            "not_supported_yet",
            f"{method} {shown} is not supported yet.",
            param=shown,
            hint="See /openapi.json for what this version serves.",
        )
    allowed = sorted({method for pattern, methods in table if pattern.match(path) for method in methods})
    if allowed:
        return RequestRefused(
            "method_not_allowed", f"{shown} does not take {method}.", headers={"Allow": ", ".join(allowed)}
        )
    return not_found(f"endpoint {shown}")
