"""An MCP server that runs in the turn's tool box, spoken to over its standard input and output.

Answers for whole lines out of what the box carries, and for no more than one message of them in memory. The box is one
trust domain: what runs in it beside the server can speak in the server's name, and may do no more than the server may.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Final, Protocol

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.box_ports import ToolOutcome
from turnkeeper.turns.mcp_client import McpBroken
from turnkeeper.turns.mcp_messages import MAX_MESSAGE_BYTES
from turnkeeper.turns.mcp_server import McpServer
from turnkeeper.turns.ports import StoreUnavailable

MAX_LAST_WORDS: Final = 500
CALL_GRACE_MS: Final = 5_000


class BoxOperation(Protocol):
    """Something that the box's agent does for the platform and no model can ask for."""

    async def __call__(self, operation: str, arguments: Mapping[str, object], *, timeout_ms: int) -> ToolOutcome: ...


class StdioLink:
    """`mcp_client.McpLink` over a tool box."""

    def __init__(self, server: McpServer, operate: BoxOperation) -> None:
        self._server = server
        self._operate = operate
        self._unread = bytearray()

    async def start(self, *, timeout_ms: int) -> None:
        """The program runs. Raises `McpBroken`."""
        server = self._server
        outcome = await self._done(
            "server_start",
            {"server": server.name, "command": list(server.command), "environment": dict(server.environment)},
            timeout_ms=timeout_ms,
        )
        if outcome.status != "ok":
            raise McpBroken(f"it could not be started: {outcome.text[:MAX_LAST_WORDS]}")

    async def send(self, message: bytes) -> None:
        """Raises `McpBroken`."""
        await self._exchange(message + b"\n", wait_ms=0)

    async def receive(self, *, timeout_ms: int) -> bytes | None:
        """The next line, without its end. Raises `McpBroken`."""
        if b"\n" not in self._unread:
            await self._exchange(b"", wait_ms=timeout_ms)
        if b"\n" not in self._unread:
            return None
        line, _, rest = bytes(self._unread).partition(b"\n")
        self._unread = bytearray(rest)
        return line

    def agreed(self, version: str) -> None:
        """Says nothing about it on this wire."""

    async def close(self) -> None:
        """The program ends with its box."""

    async def _exchange(self, data: bytes, *, wait_ms: int) -> None:
        arguments = {"server": self._server.name, "content": data.decode(), "wait_ms": wait_ms}
        outcome = await self._done("server_exchange", arguments, timeout_ms=wait_ms + CALL_GRACE_MS)
        if outcome.status != "ok":
            raise McpBroken(f"it has ended: {outcome.text[:MAX_LAST_WORDS] or 'it said nothing'}")
        try:
            self._unread += base64.b64decode(outcome.text, validate=True)
        except binascii.Error as error:
            raise McpBroken("the box answered what its agent never says") from error
        if len(self._unread) > MAX_MESSAGE_BYTES:
            await self._done("server_stop", {"server": self._server.name}, timeout_ms=CALL_GRACE_MS)
            raise McpBroken(f"it said more than {MAX_MESSAGE_BYTES} bytes at once")

    async def _done(self, operation: str, arguments: Mapping[str, object], *, timeout_ms: int) -> ToolOutcome:
        try:
            return await self._operate(operation, arguments, timeout_ms=timeout_ms)
        except StoreUnavailable:
            raise
        except TurnkeeperError as error:
            raise McpBroken(f"its box was lost: {error.message}") from error
