"""The Guardian's HTTP door (ledger rows 1 and section 24.27): POST a request, get a JSON-RPC body.

Answers for a bounded read: a body has a largest size and a longest time, and what exceeds them is drained no further
than another such bound, so that the peer can read the answer. Every JSON-RPC answer is 200, save 413 for size and 408
for time; other paths are 404, other methods 405. Must never let a request past here raise.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias, cast

from turnkeeper.acs import AcsError, AcsErrorCode
from turnkeeper.guardian.answers import render_error
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian

BODY_TIMEOUT_S: Final = 30.0
DRAIN_TIMEOUT_S: Final = 5.0
MAX_DRAINED_BYTES: Final = 8 * 1024 * 1024

# ASGI's own types, an edge.
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class _BodyRefused(Exception):
    """The body is not read to its end; `answer` says why."""

    def __init__(self, status: int, reason: str, message: str, *, drained: bool) -> None:
        super().__init__(message)
        self.status = status
        self.answer = render_error(AcsError(AcsErrorCode.INVALID_REQUEST, reason, message), None, None)
        self.drained = drained


class _PeerGone(Exception):
    """The peer closed the connection: nobody waits for an answer."""


def guardian_app(
    guardian: Guardian,
    door: Door,
    *,
    max_body_bytes: int,
    path: str | None = None,
    body_timeout_s: float = BODY_TIMEOUT_S,
) -> AsgiApp:
    """An ASGI application for one route: at `path`, or wherever a router sends it when that is None."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        if scope["type"] != "http":
            return
        if path is not None and scope["path"] != path:
            await _respond(send, 404, _error("not_found", f"the Guardian answers at {path}"))
        elif scope["method"] != "POST":
            await _respond(send, 405, _error("method_not_allowed", "send the request with POST"), (b"allow", b"POST"))
        else:
            await _answer(scope, receive, send)

    async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(body_timeout_s):
                body = await _read_body(scope, receive, max_body_bytes)
        except _PeerGone:
            return
        except TimeoutError:
            answer = _error("body_timeout", f"the body did not arrive within {body_timeout_s:g} s")
            await _respond(send, 408, answer, (b"connection", b"close"))
        except _BodyRefused as refused:
            await _refuse_body(refused, receive, send)
        else:
            await _respond(send, 200, await guardian.answer(body, door))

    return app


async def _read_body(scope: Scope, receive: Receive, max_body_bytes: int) -> bytes:
    declared = dict(cast("list[tuple[bytes, bytes]]", scope["headers"])).get(b"content-length", b"0")
    if declared.isdigit() and int(declared[:20]) > max_body_bytes:
        raise _too_large(max_body_bytes, drained=False)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _PeerGone
        part = message.get("body", b"")
        size += len(part)
        more = bool(message.get("more_body", False))
        if size > max_body_bytes:
            raise _too_large(max_body_bytes, drained=not more)
        parts.append(part)
        if not more:
            return b"".join(parts)


def _too_large(max_body_bytes: int, *, drained: bool) -> _BodyRefused:
    return _BodyRefused(413, "too_large", f"the body has more than {max_body_bytes} bytes", drained=drained)


async def _refuse_body(refused: _BodyRefused, receive: Receive, send: Send) -> None:
    # A peer that is still sending does not read: take the rest off the wire first, within bounds.
    drained = refused.drained or await _drain(receive)
    headers = () if drained else ((b"connection", b"close"),)
    await _respond(send, refused.status, refused.answer, *headers)


async def _drain(receive: Receive) -> bool:
    size = 0
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            while size <= MAX_DRAINED_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return False
                size += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return True
    except TimeoutError:
        pass
    return False


def _error(reason: str, message: str) -> bytes:
    return render_error(AcsError(AcsErrorCode.INVALID_REQUEST, reason, message), None, None)


async def _respond(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    described = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": described})
    await send({"type": "http.response.body", "body": body})
