"""Which scope a request needs (contract 2): by what its path begins with, and whether it reads or changes.

Answers for a scope for every route there is: the application cannot be built with one that has none.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from fastapi import APIRouter
from fastapi.routing import APIRoute

from turnkeeper.errors import LocalProtocolError

READS: Final = frozenset({"GET", "HEAD"})

# The longest prefix counts; the first scope is for reading, the second for everything else.
_SCOPES: Final[Mapping[str, tuple[str, str]]] = {
    "/metrics": ("admin", "admin"),
    "/v1/admin": ("admin", "admin"),
    "/v1/agents": ("agents:read", "agents:write"),
    "/v1/api_keys": ("keys:write", "keys:write"),
    "/v1/approvals": ("approvals:read", "approvals:decide"),
    "/v1/artifacts": ("files:read", "files:write"),
    "/v1/budgets": ("budgets:read", "budgets:write"),
    "/v1/events": ("events:read", "events:read"),
    "/v1/files": ("files:read", "files:write"),
    "/v1/model_prices": ("admin", "admin"),
    "/v1/secrets": ("secrets:write", "secrets:write"),
    "/v1/sessions": ("sessions:read", "sessions:write"),
    "/v1/sessions/{session_id}/approval_rules": ("approvals:read", "approvals:decide"),
    "/v1/sessions/{session_id}/artifacts": ("files:read", "files:write"),
    "/v1/sessions/{session_id}/events": ("events:read", "events:read"),
    "/v1/sessions/{session_id}/stream_tokens": ("events:read", "events:read"),
    "/v1/sessions/{session_id}/turns": ("turns:read", "turns:write"),
    "/v1/skills": ("agents:read", "agents:write"),
    "/v1/turns": ("turns:read", "turns:write"),
    "/v1/turns/{turn_id}/artifacts": ("files:read", "files:write"),
    "/v1/turns/{turn_id}/events": ("events:read", "events:read"),
    "/v1/usage": ("usage:read", "usage:read"),
    "/v1/webhook_deliveries": ("webhooks:read", "webhooks:write"),
    "/v1/webhook_endpoints": ("webhooks:read", "webhooks:write"),
}


def scope_of(method: str, path: str) -> str | None:
    """The scope that a route needs, by the path it was declared with; `None` where none is known."""
    while path and path not in _SCOPES:
        path = path.rpartition("/")[0]
    scopes = _SCOPES.get(path)
    return None if scopes is None else scopes[method not in READS]


def require_scopes(routers: Iterable[APIRouter]) -> None:
    """Raises `LocalProtocolError` for a route that needs no scope: it would be open to every key."""
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute) and not all(scope_of(each, route.path) for each in route.methods or ()):
                raise LocalProtocolError(f"{route.path} has no scope")
