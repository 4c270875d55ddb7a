"""The MCP servers of one turn (contract 2.1 `mcp_servers`; ACS extend_mcp and Inspect).

Answers for telling the Guardian what a server was found to offer, or offers now, before the agent is told (INSP-04),
for counting each call in the ledger before it is made, and for a server that cannot be used costing the turn its tools
and nothing else. Whether a call may be made is not decided here.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast

import orjson
import structlog

from turnkeeper.acs import Disposition, JsonValue
from turnkeeper.errors import TurnkeeperError
from turnkeeper.events.catalogue import ToolEnd
from turnkeeper.inspect.agbom import ServerComponent, servers_in
from turnkeeper.sandbox.protocol import ToolSpec
from turnkeeper.turns import payloads
from turnkeeper.turns.box_ports import NetworkOrder, Web
from turnkeeper.turns.egress import Egress
from turnkeeper.turns.exchange import Party
from turnkeeper.turns.mcp_client import McpBroken, McpClient, McpLink, McpRefused
from turnkeeper.turns.mcp_guard import McpDenied, McpGuard
from turnkeeper.turns.mcp_http import HttpLink
from turnkeeper.turns.mcp_server import McpServer, server_of
from turnkeeper.turns.mcp_session import McpSession
from turnkeeper.turns.mcp_stdio import StdioLink
from turnkeeper.turns.mcp_tools import McpTool, text_of
from turnkeeper.turns.model import Claim, Draft, Fence, Step
from turnkeeper.turns.tool_runs import ToolOutput, ToolRuns, cut_text
from turnkeeper.turns.workbench import Workbench

MAX_STARTS: Final = 3
"""How often a server is started in one turn: a program that fell over may have fallen over what it was asked."""
PAGE_STEPS: Final = 100
MAX_PAGES: Final = 100
"""How far back is read for what the Guardian was told last; past it, it is told once more."""
CHANGED: Final = "not called: the server says something else of this tool than when it was offered"

_AGBOM: Final = frozenset({payloads.AGBOM_SNAPSHOT, payloads.AGBOM_CHANGED})

_log = structlog.get_logger(__name__)


class McpServers:
    """What an agent's servers offer to it in one turn."""

    def __init__(
        self, bench: Workbench, claim: Claim, fence: Callable[[], Fence], *, runs: ToolRuns, egress: Egress
    ) -> None:
        turn = claim.turn
        self._bench = bench
        self._agent = claim.agent
        self._turn = turn
        self._fence = fence
        self._runs = runs
        self._egress = egress
        self._web: tuple[Web, NetworkOrder] | None = None
        self._party = Party(turn.session_id, turn.agent_id)
        self._guard = McpGuard(bench, turn, fence)
        self._sessions: dict[str, McpSession] = {}
        self._offered: dict[str, McpTool] = {}
        self._starts: dict[str, int] = {}
        self._told: dict[str, ServerComponent] | None = None
        self._opened = False

    async def open(self) -> None:
        """Speaks to each server once, so that what they offer is known. Raises `StaleFence`."""
        if self._opened:
            return
        self._opened = True
        for server in self._agent.mcp_servers:
            session = await self._started(server)
            if session is not None:
                self._offered |= session.tools

    @property
    def specs(self) -> list[ToolSpec]:
        """What the agent's model is told about."""
        return [tool.spec for tool in self._offered.values()]

    def has(self, name: str) -> bool:
        """Whether the agent was offered this."""
        return name in self._offered

    async def run(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolOutput:
        """One call, counted in the ledger before it is made. Raises `StaleFence`, `BudgetSpent`."""
        await self._bench.store.tool_ran(self._fence())
        since_ms = self._bench.clock.monotonic_ms()
        output = await self._called(self._offered[name], arguments)
        return replace(output, duration_ms=self._bench.clock.monotonic_ms() - since_ms)

    async def close(self) -> None:
        """Lets go of every server. Those in a box end with it."""
        sessions, self._sessions = self._sessions, {}
        web, self._web = self._web, None
        try:
            for session in sessions.values():
                await session.close()
        finally:
            if web is not None:
                await web[0].close()

    async def _called(self, tool: McpTool, arguments: Mapping[str, JsonValue]) -> ToolOutput:
        server = next(one for one in self._agent.mcp_servers if one.name == server_of(tool.spec.name))
        session = self._sessions.get(server.name) or await self._started(server)
        if session is None:
            return _ours("error", "not called: the server cannot be used")
        try:
            result = await session.call(
                tool,
                arguments,
                timeout_ms=self._bench.settings.tool_timeout_ms,
                on_change=lambda: self._accepted(session),
            )
        except McpDenied as denied:
            return _ours("denied", f"denied: {denied.message}")
        except McpRefused as refused:
            return self._said("error", refused.message)
        except McpBroken as broken:
            await self._drop(server, broken)
            return _ours("unknown", f"the server cannot be used any more: {broken.message}")
        if result is None:
            return _ours("error", CHANGED)
        text, failed = text_of(tool.method, result)
        return self._said("error" if failed else "ok", text)

    def _said(self, status: ToolEnd, text: str) -> ToolOutput:
        told, cut = cut_text(self._runs.masked(text), self._bench.settings.tool_output_bytes)
        return ToolOutput(status, told, cut, 0)

    async def _started(self, server: McpServer) -> McpSession | None:
        """A server that was spoken to, and the Guardian told of; None for one that cannot be used."""
        self._starts[server.name] = self._starts.get(server.name, 0) + 1
        if self._starts[server.name] > MAX_STARTS:
            return None
        try:
            session = McpSession(server, self._client(server, await self._link(server)))
            self._sessions[server.name] = session
            await session.open()
            await self._accepted(session)
        except (McpBroken, McpRefused, McpDenied) as error:
            await self._drop(server, error)
            return None
        return session

    async def _link(self, server: McpServer) -> McpLink:
        timeout_ms = self._bench.settings.mcp_timeout_ms
        if server.url:
            web, order = await self._way_out()
            return HttpLink(server, web, order.secrets, timeout_ms=timeout_ms)
        link = StdioLink(server, self._runs.operate)
        await link.start(timeout_ms=timeout_ms)
        return link

    async def _way_out(self) -> tuple[Web, NetworkOrder]:
        if self._web is None:
            order = await self._egress.order()
            web = None if order is None else self._bench.boxes.web(order)
            if order is None or web is None:
                raise McpBroken("the operator, the agent or the session lets it be reached no more")
            self._web = web, order
        return self._web

    def _client(self, server: McpServer, link: McpLink) -> McpClient:
        return McpClient(
            server.name,
            link,
            self._guard,
            clock=self._bench.clock,
            new_id=self._bench.ids.uuid,
            timeout_ms=self._bench.settings.mcp_timeout_ms,
        )

    async def _drop(self, server: McpServer, why: TurnkeeperError) -> None:
        _log.warning("mcp_server_unusable", turn_id=self._turn.id, server=server.name, code=why.code, error=str(why))
        session = self._sessions.pop(server.name, None)
        if session is not None:
            await session.close()

    async def _accepted(self, session: McpSession) -> None:
        """Tells the Guardian what a server is now, if that is news. Raises `McpDenied`, `StaleFence`."""
        told = await self._known()
        name, now = session.server.name, session.component
        before = told.get(name)
        if before == now:
            return
        servers = list((told | {name: now}).values())
        payload_json = payloads.agbom_changed(self._agent, servers, reason=reason(before, now))
        step = Draft(
            self._bench.ids.uuid(),
            payloads.AGBOM_CHANGED,
            lambda _: payload_json,
            in_window=True,
            turn_id=self._turn.id,
        )
        ruling = await self._bench.governor.ask(self._party, step, self._fence())
        # A Guardian that does not look at bills of materials decides nothing by them.
        if not ruling.allowed and ruling.kind != "not_evaluated":
            raise McpDenied(f"what the server offers now: {ruling.reasoning or 'no reason given'}")
        told[name] = now

    async def _known(self) -> dict[str, ServerComponent]:
        """The servers as the Guardian was told of them last, and let them be."""
        if self._told is None:
            self._told = await self._told_before()
        return self._told

    async def _told_before(self) -> dict[str, ServerComponent]:
        before: int | None = None
        for _ in range(MAX_PAGES):
            page = await self._bench.store.steps(self._turn.session_id, before=before, limit=PAGE_STEPS)
            for step in reversed(page):
                if step.method in _AGBOM and step.decision == Disposition.ALLOW:
                    return servers_in(_agbom(step))
            if len(page) < PAGE_STEPS:
                break
            before = page[0].ordinal
        return {one.name: one for one in payloads.configured_servers(self._agent)}


def reason(before: ServerComponent | None, now: ServerComponent) -> payloads.ChangeReason:
    """Why a server is another component now."""
    old = {} if before is None else {tool.name: tool.digest for tool in before.tools}
    new = {tool.name: tool.digest for tool in now.tools}
    if before is None or not (old or before.version):
        return "discovery"
    if any(new[name] != old[name] for name in new.keys() & old.keys()):
        return "component_upgraded"
    if new.keys() - old.keys():
        return "component_added"
    return "component_removed" if old.keys() - new.keys() else "component_upgraded"


def _agbom(step: Step) -> Mapping[str, object]:
    payload = cast("Mapping[str, Mapping[str, object]]", orjson.loads(step.payload_json or "{}"))
    return payload["agbom"] if step.method == payloads.AGBOM_SNAPSHOT else payload["full_snapshot"]


def _ours(status: ToolEnd, text: str) -> ToolOutput:
    return ToolOutput(status, text, False, 0, by_platform=True)
