"""Small answers that several routes give."""

from collections.abc import Mapping

from fastapi import Request
from starlette.responses import Response

from turnkeeper.api.problems import RequestRefused, not_found
from turnkeeper.ids import Prefix, is_id

IDEMPOTENCY_HEADER = "Idempotency-Key"


def json_response(content: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON that is already rendered."""
    return Response(content, status, headers=dict(headers or {}), media_type="application/json")


def require_id(identifier: str, prefix: Prefix, what: str) -> str:
    """The id, if it has the form of one. Raises `RequestRefused` (`not_found`): no such thing can exist."""
    if not is_id(identifier, prefix):
        raise not_found(f"{what} with this id")
    return identifier


def refuse_idempotency_key(request: Request) -> None:
    """For requests that make nothing. Raises `RequestRefused` (`not_supported_yet`), rather than ignore the key."""
    if IDEMPOTENCY_HEADER in request.headers:
        raise RequestRefused(
            "not_supported_yet", f"{IDEMPOTENCY_HEADER} is not supported yet on this path.", param=IDEMPOTENCY_HEADER
        )
