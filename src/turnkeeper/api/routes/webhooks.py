"""Webhook endpoints and their deliveries (contract 2.8 and 12)."""

import secrets
from dataclasses import replace
from typing import Final

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from turnkeeper.api.answers import json_response, refuse_idempotency_key, require_id
from turnkeeper.api.auth import Caller
from turnkeeper.api.bodies import JsonBody, read_json
from turnkeeper.api.deps import ApiDeps, Deps
from turnkeeper.api.keyed import created, created_response
from turnkeeper.api.openapi import LIST_QUERY, answers, body, making, query
from turnkeeper.api.pages import Query, Rendered, cursor_maker, list_query, read_page, render_list
from turnkeeper.api.problems import RequestRefused
from turnkeeper.api.webhook_intake import parse_change, parse_endpoint, parse_replay, parse_rotation
from turnkeeper.api.webhook_reads import (
    render_delivery,
    render_delivery_view,
    render_endpoint,
    render_rotation,
)
from turnkeeper.events.webhooks.endpoints import Delivery, DeliveryStatus, Endpoint
from turnkeeper.events.webhooks.ports import Listed
from turnkeeper.events.webhooks.signing import SECRET_BYTES, render_secret
from turnkeeper.turns.ports import Page, PageRequest

router = APIRouter(prefix="/v1", tags=["webhooks"])

_LISTED: Final = frozenset({"limit", "after", "order"})
_PATH: Final = "/webhook_endpoints/{endpoint_id}"


@router.post(
    "/webhook_endpoints",
    status_code=201,
    responses=answers({201: "NewlyMadeWebhookEndpoint", 200: "WebhookEndpoint"}),
    openapi_extra=making("NewWebhookEndpoint"),
)
async def create_endpoint(request: Request, deps: Deps, caller: Caller) -> Response:
    """Makes an endpoint. Its secret is in this answer and never shown again.

    A repeat of its Idempotency-Key shows the endpoint without it (200): rotate it where the first answer was lost.
    """
    Query(request, ())
    received = await read_json(request, max_bytes=deps.settings.max_body_bytes)
    new = replace(parse_endpoint(received, deps.settings), project_id=caller.project_id)
    secret = _new_secret()
    made = await created(
        deps, request, received, caller, lambda keyed: deps.creations.endpoint(new, keyed, secret=secret)
    )
    shown = render_endpoint(made.thing) if made.replayed else render_endpoint(made.thing, secret=secret)
    return created_response(made, shown, f"/v1/webhook_endpoints/{made.thing.id}")


@router.get("/webhook_endpoints", responses=answers({200: "WebhookEndpointList"}), openapi_extra=query(*LIST_QUERY))
async def list_endpoints(request: Request, deps: Deps, caller: Caller) -> Response:
    """Lists endpoints, newest first unless `order` says otherwise."""
    wanted = list_query(Query(request, _LISTED), deps.cursor_secret, list="webhook_endpoints")

    async def fetch(part: PageRequest) -> Page[Endpoint]:
        return Page(*await deps.webhooks.endpoints(replace(_listed(part), project_id=caller.project_id)))

    page = await read_page(wanted.page, fetch, _endpoint_element)
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get(_PATH, responses=answers({200: "WebhookEndpoint"}))
async def get_endpoint(endpoint_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows an endpoint."""
    Query(request, ())
    return json_response(render_endpoint(await deps.webhooks.endpoint(_id(endpoint_id))))


@router.patch(_PATH, responses=answers({200: "WebhookEndpoint"}), openapi_extra=body("WebhookEndpointChange"))
async def change_endpoint(endpoint_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Changes an endpoint. Switching one on forgives it how long it failed."""
    _id(endpoint_id)
    change = parse_change(await _read(request, deps), deps.settings)
    return json_response(render_endpoint(await deps.webhooks.change_endpoint(endpoint_id, change)))


@router.delete(_PATH, responses=answers({200: "Deleted"}))
async def delete_endpoint(endpoint_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Deletes an endpoint. Nothing more is sent to it; what waited is canceled."""
    Query(request, ())
    await deps.webhooks.delete_endpoint(_id(endpoint_id))
    return json_response(orjson.dumps({"id": endpoint_id, "object": "webhook_endpoint", "deleted": True}))


@router.post(
    f"{_PATH}/rotate_secret",
    responses=answers({200: "WebhookSecret"}),
    openapi_extra=body("RotateSecret", required=False),
)
async def rotate_secret(endpoint_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Makes a new secret. Until the overlap is over, the older ones sign beside it."""
    _id(endpoint_id)
    overlap_hours = parse_rotation(await _read(request, deps, optional=True))
    secret = _new_secret()
    until = await deps.webhooks.rotate_secret(endpoint_id, secret=secret, overlap_hours=overlap_hours)
    return json_response(render_rotation(await deps.webhooks.endpoint(endpoint_id), secret, until))


@router.post(f"{_PATH}/test", status_code=202, responses=answers({202: "WebhookDelivery"}))
async def send_test(endpoint_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Sends a `webhook_endpoint.test` event to this endpoint alone."""
    Query(request, ())
    return json_response(render_delivery(await deps.webhooks.send_test(_id(endpoint_id))), 202)


@router.post(
    f"{_PATH}/replay", status_code=202, responses=answers({202: "Replayed"}), openapi_extra=body("ReplayWebhooks")
)
async def replay(endpoint_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Sends deliveries of a time once more: those given up, or with `only: all` those taken too."""
    _id(endpoint_id)
    wanted = parse_replay(await _read(request, deps), deps.clock.now())
    count = await deps.webhooks.replay(endpoint_id, wanted)
    return json_response(orjson.dumps({"object": "replay", "endpoint_id": endpoint_id, "count": count}), 202)


@router.get(
    f"{_PATH}/deliveries",
    responses=answers({200: "WebhookDeliveryList"}),
    openapi_extra=query(*LIST_QUERY, "delivery_status"),
)
async def list_deliveries(endpoint_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Lists an endpoint's deliveries, newest first unless `order` says otherwise."""
    values = Query(request, _LISTED | {"status"})
    status = _status(values)
    bound = {"list": "deliveries", "endpoint_id": _id(endpoint_id), "status": status}
    wanted = list_query(values, deps.cursor_secret, **bound)

    async def fetch(part: PageRequest) -> Page[Delivery]:
        return Page(*await deps.webhooks.deliveries(endpoint_id, _listed(part), status))

    page = await read_page(wanted.page, fetch, _delivery_element)
    return render_list(page, cursor_maker(wanted.filters, deps.cursor_secret))


@router.get("/webhook_deliveries/{delivery_id}", responses=answers({200: "WebhookDeliveryView"}))
async def get_delivery(delivery_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Shows a delivery: what is sent, and what came back on each try."""
    Query(request, ())
    require_id(delivery_id, "whd", "webhook delivery")
    return json_response(render_delivery_view(await deps.webhooks.delivery(delivery_id)))


@router.post("/webhook_deliveries/{delivery_id}/retry", status_code=202, responses=answers({202: "WebhookDelivery"}))
async def retry_delivery(delivery_id: str, request: Request, deps: Deps, _caller: Caller) -> Response:
    """Sends a delivery that has ended once more."""
    Query(request, ())
    require_id(delivery_id, "whd", "webhook delivery")
    return json_response(render_delivery(await deps.webhooks.retry(delivery_id)), 202)


async def _read(request: Request, deps: ApiDeps, *, optional: bool = False) -> JsonBody:
    Query(request, ())
    refuse_idempotency_key(request)
    return await read_json(request, max_bytes=deps.settings.max_body_bytes, optional=optional)


def _id(endpoint_id: str) -> str:
    return require_id(endpoint_id, "whe", "webhook endpoint")


def _new_secret() -> str:
    return render_secret(secrets.token_bytes(SECRET_BYTES))


def _listed(part: PageRequest) -> Listed:
    return Listed(part.limit, part.after, part.order)


def _status(values: Query) -> DeliveryStatus | None:
    text = values.text("status")
    if text is None:
        return None
    if text not in {status.value for status in DeliveryStatus}:
        raise RequestRefused("invalid_field", f"{text[:100]!r} is not a delivery's status.", param="status")
    return DeliveryStatus(text)


async def _endpoint_element(endpoint: Endpoint) -> Rendered:
    return Rendered(render_endpoint(endpoint), endpoint.id)


async def _delivery_element(delivery: Delivery) -> Rendered:
    return Rendered(render_delivery(delivery), delivery.id)
