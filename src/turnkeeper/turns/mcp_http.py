"""An MCP server that is reached by streamable HTTP (MCP 2025-06-18, transports), through the agent's egress.

Answers for the headers that the transport asks for, and for an answer that is one message or a stream of them. Opens no
stream of its own for what a server might want to say unasked, and follows no redirect.
"""

import re
from collections.abc import Mapping
from typing import Final

import structlog

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.box_ports import NetworkSecret, Web, WebAnswer
from turnkeeper.turns.mcp_client import McpBroken
from turnkeeper.turns.mcp_messages import MAX_MESSAGE_BYTES
from turnkeeper.turns.mcp_server import McpServer

SESSION_HEADER: Final = "mcp-session-id"
VERSION_HEADER: Final = "mcp-protocol-version"
FAREWELL_TIMEOUT_MS: Final = 2_000
ACCEPTED: Final = frozenset({202, 204})
FOUND: Final = 200

_USUAL: Final[Mapping[str, str]] = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,256}\Z")
_PLACE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")

_log = structlog.get_logger(__name__)


class HttpLink:
    """`mcp_client.McpLink` over HTTP. `secrets` are those that the headers may name."""

    def __init__(self, server: McpServer, web: Web, secrets: tuple[NetworkSecret, ...], *, timeout_ms: int) -> None:
        self._server = server
        self._web = web
        self._timeout_ms = timeout_ms
        self._answer: WebAnswer | None = None
        self._headers = {**_headers(server, secrets), **_USUAL}
        self._has_session = False

    async def send(self, message: bytes) -> None:
        """Raises `McpBroken`."""
        answer = await self._asked("POST", message, timeout_ms=self._timeout_ms)
        if answer.status not in {*ACCEPTED, FOUND}:
            await answer.close()
            raise McpBroken(f"it answered with status {answer.status}")
        session_id = answer.headers.get(SESSION_HEADER)
        if session_id is not None and _SESSION_ID.match(session_id):
            self._headers[SESSION_HEADER] = session_id
            self._has_session = True
        if answer.status in ACCEPTED:
            await answer.close()
            return
        await self._end_answer()
        self._answer = answer

    async def receive(self, *, timeout_ms: int) -> bytes | None:
        """The next message of the answer. Raises `McpBroken`."""
        if self._answer is None:
            if timeout_ms:
                raise McpBroken("it ended its answer without one")
            return None
        try:
            part = await self._answer.part(timeout_ms=timeout_ms)
        except TimeoutError:
            return None
        except TurnkeeperError as error:
            raise McpBroken(error.message) from error
        if part is None:
            await self._end_answer()
            return await self.receive(timeout_ms=timeout_ms)
        return part

    def agreed(self, version: str) -> None:
        """Says so with every message from now on."""
        self._headers[VERSION_HEADER] = version

    async def close(self) -> None:
        """Tells the server that its session is over, and does not wait for long."""
        await self._end_answer()
        if not self._has_session:
            return
        self._has_session = False
        try:
            await (await self._asked("DELETE", b"", timeout_ms=FAREWELL_TIMEOUT_MS)).close()
        except McpBroken as error:
            _log.info("mcp_farewell_failed", server=self._server.name, error=error.message)

    async def _asked(self, method: str, body: bytes, *, timeout_ms: int) -> WebAnswer:
        try:
            return await self._web.request(
                method, self._server.url, self._headers, body, timeout_ms=timeout_ms, max_bytes=MAX_MESSAGE_BYTES
            )
        except TurnkeeperError as error:
            raise McpBroken(error.message) from error

    async def _end_answer(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            await answer.close()


def _headers(server: McpServer, secrets: tuple[NetworkSecret, ...]) -> dict[str, str]:
    """The agent's own, with placeholders; what they stand for is put in beyond this process's own words."""
    placeholders = {secret.variable: secret.placeholder for secret in secrets}
    named = {name for value in server.headers.values() for name in _PLACE.findall(value)}
    if missing := sorted(named - placeholders.keys()):
        raise McpBroken(f"the session has no secret {missing[0]}, which a header names")
    return {name: _PLACE.sub(lambda found: placeholders[found[1]], value) for name, value in server.headers.items()}
