"""API keys: make one, look at one, list, change, rotate and revoke them (contract 2.9)."""

from datetime import timedelta
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response, require_id
from turnkeeper.api.auth import Caller, generate_secret
from turnkeeper.api.bodies import read_json
from turnkeeper.api.deps import Deps
from turnkeeper.api.key_intake import parse_key_body, parse_key_change, parse_key_rotation
from turnkeeper.api.key_reads import render_key, render_rotated
from turnkeeper.api.keyed import created, created_response
from turnkeeper.api.openapi import LIST_QUERY, answers, body, making, query
from turnkeeper.api.pages import Query, Rendered, cursor_maker, list_query, read_page, render_list
from turnkeeper.turns.access import check_grant
from turnkeeper.turns.model import ApiKey

router = APIRouter(prefix="/v1", tags=["api_keys"])

_LISTED: Final = frozenset({"limit", "after", "order"})


@router.post(
    "/api_keys",
    status_code=201,
    responses=answers({201: "NewlyMadeApiKey", 200: "ApiKey"}),
    openapi_extra=making("NewApiKey"),
)
async def create_key(request: Request, deps: Deps, caller: Caller) -> Response:
    """Makes a key of the caller's project, with scopes and agents that the caller has. Its secret is shown once.

    A repeat of its Idempotency-Key shows the key without it (200): rotate the key where the first answer was lost.
    """
    Query(request, ())
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    made = generate_secret()
    new = parse_key_body(received, deps.clock.now(), secret_sha256=made.sha256, project_id=caller.project_id)
    check_grant(caller, new.scopes, new.agent_ids)
    key = await created(
        deps, request, received, caller, lambda keyed: deps.creations.api_key(new, keyed, actor=caller.id)
    )
    shown = render_key(key.thing) if key.replayed else render_key(key.thing, secret=made.secret)
    return created_response(key, shown, f"/v1/api_keys/{key.thing.id}")


@router.get("/api_keys", responses=answers({200: "ApiKeyList"}), openapi_extra=query(*LIST_QUERY))
async def list_keys(request: Request, deps: Deps, caller: Caller) -> Response:
    """Lists the project's keys, revoked ones too, newest first unless `order` says otherwise."""
    wanted = list_query(Query(request, _LISTED), deps.cursor_secret, list="api_keys", project_id=caller.project_id)
    page = await read_page(wanted.page, lambda part: deps.access.keys_of(caller.project_id, part), _element)
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get("/api_keys/{key_id}", responses=answers({200: "ApiKey"}))
async def get_key(key_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows a key without its secret, which nobody has."""
    Query(request, ())
    return json_response(render_key(await deps.access.key(require_id(key_id, "key", "API key"))))


@router.patch("/api_keys/{key_id}", responses=answers({200: "ApiKey"}), openapi_extra=body("ApiKeyChange"))
async def change_key(key_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Changes what is named and leaves the rest; `limits` are replaced as a whole."""
    Query(request, ())
    require_id(key_id, "key", "API key")
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    change = parse_key_change(received, deps.clock.now())
    known = await deps.access.key(key_id)
    scopes = known.scopes if change.scopes is None else change.scopes
    check_grant(caller, scopes, known.agent_ids if change.agent_ids is None else change.agent_ids)
    return json_response(render_key(await deps.access.change_key(key_id, change)))


@router.delete("/api_keys/{key_id}", responses=answers({200: "ApiKey"}))
async def revoke_key(key_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Revokes a key: the next request that shows it is refused, and its streams end."""
    Query(request, ())
    require_id(key_id, "key", "API key")
    return json_response(render_key(await deps.access.end_key(key_id, actor=caller.id)))


@router.post(
    "/api_keys/{key_id}/rotate",
    responses=answers({200: "RotatedApiKey"}),
    openapi_extra=body("RotateApiKey", required=False),
)
async def rotate_key(key_id: str, request: Request, deps: Deps, caller: Caller) -> Response:
    """Gives a key another secret; the one it had works for `overlap_hours` more."""
    Query(request, ())
    require_id(key_id, "key", "API key")
    hours = parse_key_rotation(await read_json(request, max_bytes=deps.settings.max_body_bytes, optional=True))
    known = await deps.access.key(key_id)
    check_grant(caller, known.scopes, known.agent_ids)
    made = generate_secret()
    key = await deps.access.rotate_key(key_id, secret_sha256=made.sha256, overlap_hours=hours, actor=caller.id)
    until = deps.clock.now() + timedelta(hours=hours) if hours else None
    return json_response(render_rotated(key, made.secret, until))


async def _element(key: ApiKey) -> Rendered:
    return Rendered(render_key(key), key.id)
