"""Secrets: keep one, see that it is there, delete it (contract 2.13). No answer has a value."""

from typing import Final

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response, require_id
from turnkeeper.api.auth import Caller
from turnkeeper.api.bodies import JsonBody, read_json
from turnkeeper.api.deps import Deps
from turnkeeper.api.keyed import created, created_response
from turnkeeper.api.openapi import LIST_QUERY, answers, making, query
from turnkeeper.api.pages import Query, Rendered, cursor_maker, list_query, read_page, render_list
from turnkeeper.api.secret_intake import parse_secret
from turnkeeper.clock import render_time
from turnkeeper.turns.secrets import Secret

router = APIRouter(prefix="/v1", tags=["secrets"])

_LISTED: Final = frozenset({"limit", "after", "order"})


@router.post(
    "/secrets", status_code=201, responses=answers({201: "Secret", 200: "Secret"}), openapi_extra=making("NewSecret")
)
async def create_secret(request: Request, deps: Deps, caller: Caller) -> Response:
    """Keeps a value for the caller's project, to be added to requests to its hosts. It is not shown again."""
    Query(request, ())
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    new = parse_secret(received, caller.project_id)
    # A fingerprint is stored; of the value it may have only what says nothing without the key.
    compared = JsonBody({**received.members, "value": deps.secrets.mark(new.value)}, {})
    made = await created(deps, request, compared, caller, lambda keyed: deps.secrets.make(new, keyed))
    return created_response(made, _render(made.thing), f"/v1/secrets/{made.thing.id}")


@router.get("/secrets", responses=answers({200: "SecretList"}), openapi_extra=query(*LIST_QUERY))
async def list_secrets(request: Request, deps: Deps, caller: Caller) -> Response:
    """Lists the project's secrets, newest first unless `order` says otherwise."""
    wanted = list_query(Query(request, _LISTED), deps.cursor_secret, list="secrets", project_id=caller.project_id)
    page = await read_page(wanted.page, lambda part: deps.secrets.secrets_of(caller.project_id, part), _element)
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get("/secrets/{secret_id}", responses=answers({200: "Secret"}))
async def get_secret(secret_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows a secret without its value."""
    Query(request, ())
    return json_response(_render(await deps.secrets.secret(require_id(secret_id, "sec", "secret"))))


@router.delete("/secrets/{secret_id}", responses=answers({200: "Deleted"}))
async def delete_secret(secret_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Deletes a secret. Boxes that are open keep it to their end; sessions that name it get none from then on."""
    Query(request, ())
    await deps.secrets.delete(require_id(secret_id, "sec", "secret"))
    return json_response(orjson.dumps({"id": secret_id, "object": "secret", "deleted": True}))


def _render(secret: Secret) -> bytes:
    return orjson.dumps(
        {
            "id": secret.id,
            "object": "secret",
            "project_id": secret.project_id,
            "name": secret.name,
            "hosts": secret.hosts,
            "created_at": render_time(secret.created_at),
        }
    )


async def _element(secret: Secret) -> Rendered:
    return Rendered(_render(secret), secret.id)
