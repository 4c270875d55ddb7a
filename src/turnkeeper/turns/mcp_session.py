"""One MCP server in one turn: started, greeted, listed, called.

Answers for calling only what was offered to the agent as it was offered: a tool that says something else of itself now
is not called in this turn (a changed tool is a matter for the Guardian first, and for the model to be told anew).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from turnkeeper import __version__
from turnkeeper.acs import JsonObject, JsonValue
from turnkeeper.inspect.agbom import ServerComponent
from turnkeeper.turns.mcp_client import McpBroken, McpClient
from turnkeeper.turns.mcp_server import McpServer
from turnkeeper.turns.mcp_tools import MAX_TOOLS, McpTool, features_of, read_tools

MAX_PAGES: Final = 8
MAX_LISTINGS: Final = 8
"""How often a server may change its list within a turn."""

_log = structlog.get_logger(__name__)


class McpSession:
    """A server that was greeted. `tools` is what it says it offers now."""

    def __init__(self, server: McpServer, client: McpClient) -> None:
        self.server = server
        self.tools: dict[str, McpTool] = {}
        self._client = client
        self._listings = 0

    @property
    def component(self) -> ServerComponent:
        """The server as a part of the agent, as it is now."""
        served = tuple(tool.served for tool in sorted(self.tools.values(), key=lambda tool: tool.spec.name))
        return ServerComponent(self.server.name, self.server.url, self._client.version, served)

    async def open(self) -> None:
        """Raises `McpBroken`, `McpRefused`, `McpDenied`."""
        await self._client.open(client_version=__version__)
        await self.list_tools()

    async def list_tools(self) -> None:
        """Asks what the server offers. Raises `McpBroken`, `McpRefused`, `McpDenied`."""
        self._listings += 1
        if self._listings > MAX_LISTINGS:
            raise McpBroken("it changes its list of tools without end")
        self._client.tools_changed = False
        features = features_of(self.server, self._client.capabilities)
        tools, left_out = read_tools(self.server, await self._listed())
        if left_out:
            _log.warning("mcp_tools_left_out", server=self.server.name, tools=left_out[:MAX_TOOLS])
        # What we make of a server's other abilities comes last: no tool of its own stands in for it.
        self.tools = {tool.spec.name: tool for tool in (*tools, *features)}

    async def call(
        self,
        tool: McpTool,
        arguments: Mapping[str, JsonValue],
        *,
        timeout_ms: int,
        on_change: Callable[[], Awaitable[None]],
    ) -> JsonObject | None:
        """The result; None for a tool that is not what it was when it was offered, which is not called.

        Raises `McpBroken`, `McpRefused`, `McpDenied`.
        """
        await self._client.catch_up()
        if self._client.tools_changed:
            await self.list_tools()
            await on_change()
        if self.tools.get(tool.spec.name) != tool:
            return None
        return await self._client.ask(tool.method, tool.params(arguments), timeout_ms=timeout_ms)

    async def close(self) -> None:
        """Lets go of the server."""
        await self._client.close()

    async def _listed(self) -> list[JsonValue]:
        if not isinstance(self._client.capabilities.get("tools"), dict):
            return []
        listed: list[JsonValue] = []
        params: dict[str, JsonValue] = {}
        for _ in range(MAX_PAGES):
            result = await self._client.ask("tools/list", params)
            page, cursor = result.get("tools"), result.get("nextCursor")
            listed += page if isinstance(page, list) else []
            if not isinstance(cursor, str):
                return listed
            params = {"cursor": cursor}
        raise McpBroken(f"its list of tools has more than {MAX_PAGES} pages")
