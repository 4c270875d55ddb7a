"""The model gateway over HTTP, for runners: a turn's own model socket behind the gateway token of its lease.

Answers for reaching the socket of that one turn, and for a model call that is given up when its runner leaves. Adds
nothing and meters nothing: the gateway does, as for a box of ours.
"""

from collections.abc import AsyncGenerator
from typing import Final

import httpx
import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from turnkeeper.api.bodies import read_bytes
from turnkeeper.runners.boxes import LeaseOver, RemoteLoopBox
from turnkeeper.runners.leaving import unless_left

GATEWAY_SOCKET_NAME: Final = "gateway.sock"
MAX_REQUEST_BYTES: Final = 32 << 20

_PASSED_ON: Final = ("content-type", "retry-after", "x-should-retry", "x-turnkeeper-dropped", "allow")
_SENT_ON: Final = ("content-type", "accept", "anthropic-version", "anthropic-beta")

_log = structlog.get_logger(__name__)


async def forward(box: RemoteLoopBox, request: Request, path: str) -> Response:
    """The gateway's answer, as it comes. Raises `LeaseOver`, `RequestRefused`."""
    body = await read_bytes(request, max_bytes=MAX_REQUEST_BYTES)
    transport = httpx.AsyncHTTPTransport(uds=str(box.socket_dir / GATEWAY_SOCKET_NAME))
    # The gateway has deadlines of its own; a second one here would cut what it still answers.
    client = httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=None, trust_env=False)  # noqa: S113
    headers = {name: request.headers[name] for name in _SENT_ON if name in request.headers}
    target = f"/{path}?{request.url.query}" if request.url.query else f"/{path}"
    try:
        asked = client.build_request(request.method, target, content=body, headers=headers)
        answer = await unless_left(request, client.send(asked, stream=True))
    except httpx.HTTPError as error:
        await client.aclose()
        raise LeaseOver(f"the model gateway of {box.holder.turn_id} is closed") from error
    except BaseException:
        await client.aclose()
        raise
    passed = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
    return StreamingResponse(_body(client, answer), status_code=answer.status_code, headers=passed)


async def _body(client: httpx.AsyncClient, answer: httpx.Response) -> AsyncGenerator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    except httpx.HTTPError as error:
        # The turn ended under it. What was streamed has no proper end then, which a client can see.
        _log.warning("runner_model_call_cut", error=type(error).__name__)
    finally:
        await answer.aclose()
        await client.aclose()
