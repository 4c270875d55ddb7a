"""One MCP server as its client sees it: one question at a time, whatever else the server says in between.

Answers for deadlines and bounds against a server that is silent, floods or lies, for messages that count being asked
about in both directions before they take effect, and for refusing what a server asks of its client: sampling,
elicitation and roots are not offered, and a server that asks for them all the same is told so.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, cast

import structlog

from turnkeeper.acs import JsonObject
from turnkeeper.clock import Clock
from turnkeeper.errors import RemoteProtocolError, TurnkeeperError
from turnkeeper.turns.mcp_guard import McpDenied, McpGuard
from turnkeeper.turns.mcp_messages import (
    METHOD_NOT_FOUND,
    NO_ANSWER,
    PROTOCOL_VERSIONS,
    McpMessage,
    answer,
    failure,
    notification,
    parse_message,
    render,
    request,
)

MAX_FOREIGN_MESSAGES: Final = 1_000
"""What a server may say in a turn beside the answers that it was asked for."""
MAX_ASKED_NOTIFICATIONS: Final = 64
"""How many of them the Guardian is asked about in a turn; further ones are dropped, and nothing comes of them."""
INITIALIZE: Final = "initialize"
INITIALIZED: Final = "notifications/initialized"
CANCELLED: Final = "notifications/cancelled"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
TOOLS_CALL: Final = "tools/call"
PING: Final = "ping"

_log = structlog.get_logger(__name__)


class McpBroken(RemoteProtocolError):
    """The server cannot be used any more: it has ended, does not answer, or says what no server says."""

    code = "mcp_server_broken"


class McpRefused(TurnkeeperError):
    """The server answered with an error; the text is its own."""

    code = "mcp_error"


class McpLink(Protocol):
    """The wire to one server. Whole messages go out and come in; none is believed."""

    async def send(self, message: bytes) -> None:
        """Raises `McpBroken`."""
        ...

    async def receive(self, *, timeout_ms: int) -> bytes | None:
        """The next message; None where none comes in time. Raises `McpBroken`."""
        ...

    def agreed(self, version: str) -> None:
        """Both sides speak this version of MCP from now on."""
        ...

    async def close(self) -> None:
        """Lets go of the server. Safe to call again."""
        ...


class McpClient:
    """Speaks to one server for one turn. `tools_changed` is set by a server whose list of tools is another one now."""

    def __init__(
        self, name: str, link: McpLink, guard: McpGuard, *, clock: Clock, new_id: Callable[[], str], timeout_ms: int
    ) -> None:
        self._name = name
        self._link = link
        self._guard = guard
        self._clock = clock
        self._new_id = new_id
        self._timeout_ms = timeout_ms
        self._foreign = 0
        self._asked = 0
        self.tools_changed = False
        self.capabilities: JsonObject = {}
        self.version = ""

    async def open(self, *, client_version: str) -> None:
        """The handshake of MCP. Raises `McpBroken`, `McpRefused`, `McpDenied`."""
        asked = {
            "protocolVersion": PROTOCOL_VERSIONS[0],
            "capabilities": {},
            "clientInfo": {"name": "turnkeeper", "version": client_version},
        }
        result = await self.ask(INITIALIZE, asked)
        version = result.get("protocolVersion")
        if not isinstance(version, str) or version not in PROTOCOL_VERSIONS:
            raise McpBroken(f"it speaks another version of MCP: {str(version)[:40]}")
        self.capabilities = _object(result.get("capabilities"))
        stated = _object(result.get("serverInfo")).get("version")
        self.version = stated[:100] if isinstance(stated, str) else ""
        self._link.agreed(version)
        await self._say(INITIALIZED)

    async def ask(self, method: str, params: Mapping[str, object], *, timeout_ms: int | None = None) -> JsonObject:
        """The result of a request; both are shown to the Guardian first.

        A `tools/call` is shown as the tool call that it is (MCP-01), by whoever calls this.
        Raises `McpBroken`, `McpRefused`, `McpDenied`.
        """
        wraps = method != TOOLS_CALL
        message: Mapping[str, object] = request(self._new_id(), method, params)
        if wraps:
            message = await self._guard.passed(method, message)
        try:
            await self._link.send(render(message))
            response = await self._response(message["id"], timeout_ms or self._timeout_ms)
        except McpBroken as broken:
            if wraps:
                await self._closed(method, message["id"], broken)
            raise
        if response is None:
            await self._given_up(method, message["id"], wraps=wraps)
            raise McpBroken(f"it did not answer {method} in time")
        if wraps:
            response = McpMessage(_json(await self._guard.passed(method, response.document)), "response")
        if response.result is None:
            code, text = response.error
            raise McpRefused(f"{text[:2_000]} ({code})")
        return response.result

    async def catch_up(self) -> None:
        """Hears what the server has said unasked. Raises `McpBroken`."""
        while (line := await self._link.receive(timeout_ms=0)) is not None:
            await self._hear(parse(line))

    async def close(self) -> None:
        """Lets go of the server."""
        await self._link.close()

    async def _response(self, message_id: object, timeout_ms: int) -> McpMessage | None:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
            line = await self._link.receive(timeout_ms=left_ms)
            if line is None:
                continue
            message = parse(line)
            # To Python 1 is True and 1.0; ours is a text that nobody can guess.
            if message.kind == "response" and message.document["id"] == message_id:
                return message
            await self._hear(message)
        return None

    async def _hear(self, message: McpMessage) -> None:
        self._foreign += 1
        if self._foreign > MAX_FOREIGN_MESSAGES:
            raise McpBroken("it says too much that it was not asked for")
        if message.kind == "request":
            await self._link.send(render(_answer_to(message)))
        elif message.kind == "notification":
            await self._noted(message)
        else:
            _log.warning("mcp_answer_to_nothing", server=self._name)

    async def _noted(self, message: McpMessage) -> None:
        self._asked += 1
        if self._asked > MAX_ASKED_NOTIFICATIONS:
            # A list that changes without end is not followed; what is not known to be the same is not used.
            self.tools_changed = self.tools_changed or message.method == TOOLS_CHANGED
            return
        try:
            await self._guard.passed(message.method, message.document)
        except McpDenied as denied:
            _log.info("mcp_notification_denied", server=self._name, method=message.method[:100], reason=denied.message)
            return
        self.tools_changed = self.tools_changed or message.method == TOOLS_CHANGED

    async def _say(self, method: str, params: Mapping[str, object] | None = None) -> None:
        await self._link.send(render(await self._guard.passed(method, notification(method, params))))

    async def _given_up(self, method: str, message_id: object, *, wraps: bool) -> None:
        if wraps:
            await self._closed(method, message_id, McpBroken("no answer in time"))
        try:
            await self._say(CANCELLED, {"requestId": message_id, "reason": "no answer in time"})
        except (McpDenied, McpBroken) as error:
            _log.info("mcp_cancel_not_sent", server=self._name, error=str(error))

    async def _closed(self, method: str, message_id: object, why: McpBroken) -> None:
        """Tells the Guardian that a call it let through has no answer, so that it waits for none."""
        try:
            await self._guard.passed(method, failure(message_id, NO_ANSWER, why.message))
        except McpDenied as denied:
            _log.info("mcp_end_denied", server=self._name, reason=denied.message)


def parse(line: bytes) -> McpMessage:
    """A server's line. Raises `McpBroken`: what it says next would mean nothing either."""
    try:
        return parse_message(line)
    except RemoteProtocolError as error:
        raise McpBroken(f"it said what is no message of MCP: {error.message}") from error


def _answer_to(message: McpMessage) -> dict[str, object]:
    message_id = message.document["id"]
    if message.method == PING:
        return answer(message_id, {})
    return failure(message_id, METHOD_NOT_FOUND, f"this client offers no {message.method[:100]}")


def _json(document: Mapping[str, object]) -> JsonObject:
    return cast("JsonObject", document)


def _object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}
