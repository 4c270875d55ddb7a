"""The outermost layer of the API: request ids, correlation ids, versions, and what happens to an unexpected error.

Answers for an answer to every request, with its `Request-Id`. Must never let an error's text reach a client. One of
the four places that catch everything: it logs once and answers `internal_error`.
"""

import re
import traceback
from typing import Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnkeeper.api.problems import RequestRefused, internal_error, problem_response
from turnkeeper.errors import TurnkeeperError
from turnkeeper.events.envelope import API_VERSION
from turnkeeper.ids import IdSource

CORRELATION_HEADER: Final = "X-Correlation-Id"
VERSION_HEADER: Final = "Api-Version"
CLOUDEVENTS: Final = "application/cloudevents+json"

_CORRELATION_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}\Z")
_log = structlog.stdlib.get_logger("turnkeeper.api")


class RequestEdge:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, ids: IdSource) -> None:
        self._app = app
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, self._ids.new("req"))
        scope.setdefault("state", {})["request_id"] = answer.request_id
        try:
            _check_headers(Headers(scope=scope), answer)
            await self._app(scope, receive, answer.send)
        except TurnkeeperError as error:
            await self._refuse(error, answer, scope, receive)
        except Exception as error:  # noqa: BLE001 (the request handler fails closed)
            _log_once(error, answer, scope)
            await self._refuse(internal_error(), answer, scope, receive)

    async def _refuse(self, error: TurnkeeperError, answer: "_Answer", scope: Scope, receive: Receive) -> None:
        # An answer that has begun cannot be taken back; the server closes the connection on it.
        if not answer.started:
            response = problem_response(error, request_id=answer.request_id)
            await response(scope, receive, answer.send)


def _log_once(error: Exception, answer: "_Answer", scope: Scope) -> None:
    # As text: a renderer of tracebacks may show local values, the caller's Authorization header among them.
    trace = "".join(traceback.format_exception(error))
    _log.error(
        "request_failed", request_id=answer.request_id, method=scope["method"], path=scope["path"], traceback=trace
    )


class _Answer:
    """The answer on its way out, with the headers that every answer has."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.correlation_id: str | None = None
        self.started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            headers["Request-Id"] = self.request_id
            headers["X-Content-Type-Options"] = "nosniff"
            headers.setdefault("Cache-Control", "no-store")
            if self.correlation_id is not None:
                headers[CORRELATION_HEADER] = self.correlation_id
        await self._send(message)


def _check_headers(headers: Headers, answer: _Answer) -> None:
    correlation_id = headers.get(CORRELATION_HEADER)
    if correlation_id is not None:
        if _CORRELATION_ID.match(correlation_id) is None:
            raise RequestRefused(
                "invalid_field",
                f"{CORRELATION_HEADER} is not 1 to 128 of the characters A-Z a-z 0-9 . _ : / + = @ -",
                param=CORRELATION_HEADER,
                hint="Send another value or leave the header out.",
            )
        answer.correlation_id = correlation_id
    if CLOUDEVENTS in headers.get("Accept", ""):
        raise RequestRefused("not_supported_yet", f"{CLOUDEVENTS} is not supported yet.", param="Accept")
    version = headers.get(VERSION_HEADER, API_VERSION)
    if version != API_VERSION:
        raise RequestRefused(
            "api_version_unknown", f"this server speaks the API version {API_VERSION}", param=VERSION_HEADER
        )
