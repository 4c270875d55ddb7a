"""Requests that make something and may come with an Idempotency-Key (contract 9): the key, and the answers."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import Request
from starlette.responses import Response

from turnkeeper.api.answers import IDEMPOTENCY_HEADER, json_response
from turnkeeper.api.bodies import JsonBody
from turnkeeper.api.deps import ApiDeps
from turnkeeper.api.problems import RequestRefused
from turnkeeper.turns.creations import Created
from turnkeeper.turns.idempotency import KeyedRequest, fingerprint, parse_key
from turnkeeper.turns.model import ApiKey

T = TypeVar("T")


def idempotency_key(request: Request) -> str | None:
    """The request's key. Raises `RequestRefused`, `IdempotencyKeyInvalid`."""
    values = request.headers.getlist(IDEMPOTENCY_HEADER)
    if len(values) > 1:
        raise RequestRefused("idempotency_key_invalid", "The header is given twice.", param=IDEMPOTENCY_HEADER)
    return parse_key(values[0]) if values else None


def fingerprint_of(request: Request, received: JsonBody) -> str:
    """What makes this request the same as another one with its key."""
    return fingerprint(request.method, request.url.path, received.members)


async def created(
    deps: ApiDeps,
    request: Request,
    received: JsonBody,
    caller: ApiKey,
    make: Callable[[KeyedRequest | None], Awaitable[Created[T]]],
) -> Created[T]:
    """What the request makes, or has made before. Raises `IdempotencyInProgress`, and what `make` raises."""
    key = idempotency_key(request)
    keyed = None if key is None else KeyedRequest(caller.project_id, key, fingerprint_of(request, received))
    async with deps.in_flight.held(caller.project_id, key):
        return await make(keyed)


def created_response(made: Created[T], content: bytes, location: str) -> Response:
    """201 with what was made, 200 with what the key stands for already."""
    headers = {"Location": location} | ({"Idempotent-Replayed": "true"} if made.replayed else {})
    return json_response(content, 200 if made.replayed else 201, headers)
