"""Parts for tests of MCP: a worker whose loop is a script, whose tool boxes are real, and whose Guardian is real."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

import orjson
from tests.integration.test_governed_turn import PATIENT
from tests.unit.sandbox.box_parts import running, settings
from tests.unit.turns.rig import KEYRING, SETTINGS, Rig, rig

from turnkeeper.clock import SystemClock
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import parse_rules
from turnkeeper.sandbox.bwrap import BwrapDriver
from turnkeeper.sandbox.protocol import ToolRequest, ToolResult, ToolSpec
from turnkeeper.sandbox.runtime_paths import tool_runtime
from turnkeeper.settings import HarnessSettings
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.testing.recording_sandbox import ScriptedHarness
from turnkeeper.turns.approvals import ApprovalAnswer, DecidedBy
from turnkeeper.turns.box_ports import LoopBox, LoopOrder, NetworkOrder, ToolBox, Web
from turnkeeper.turns.mcp_server import McpServer
from turnkeeper.turns.model import AgentLimits, BoxSize, ModelChoice, Network, Turn
from turnkeeper.turns.permissions import Permission
from turnkeeper.turns.ports import NewAgent, NewSession, PageRequest
from turnkeeper.turns.worker import Worker
from turnkeeper.wiring.boxes import WorkerBoxes, order_of
from turnkeeper.wiring.doors import InProcessLink
from turnkeeper.wiring.harnesses import BoxOrders

WayOut: TypeAlias = Callable[[NetworkOrder], Web | None]

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "mcp_server.py"
ALLOW: Final = b"version: 1\nname: test\ndefault: allow\nrules: []\n"


def example() -> McpServer:
    """The example of the how-to, as it lies in the workspace."""
    return served(EXAMPLE.read_text(encoding="utf-8"), "notes")


def served(code: str, name: str = "hostile") -> McpServer:
    """A server of these words of Python."""
    return McpServer(name, (str(tool_runtime().executable), "-I", "-S", "-c", code))


def nowhere(_: NetworkOrder) -> Web | None:
    """There is no way out."""
    return None


class RealToolBoxes:
    """Loop boxes of one kind, tool boxes of another."""

    def __init__(self, loops: Rig, tools: WorkerBoxes, way_out: WayOut) -> None:
        self._loops = loops.sandbox
        self._way_out = way_out
        self._tools = tools

    @property
    def kind(self) -> str:
        return self._tools.kind

    async def loop_box(self, order: LoopOrder) -> LoopBox:
        return await self._loops.loop_box(order)

    async def tool_box(
        self, workspace: Path, size: BoxSize, network: NetworkOrder | None = None, *, skills: Path | None = None
    ) -> ToolBox:
        return await self._tools.tool_box(workspace, size, network, skills=skills)

    def web(self, network: NetworkOrder) -> Web | None:
        return self._way_out(network)


@dataclass
class Played:
    """A turn that is over: what its agent was offered and told, and what the Guardian was asked."""

    turn: Turn | None = None
    tools: list[ToolSpec] = field(default_factory=list[ToolSpec])
    results: list[ToolResult] = field(default_factory=list[ToolResult])
    steps: list[tuple[str, dict[str, object]]] = field(default_factory=list[tuple[str, dict[str, object]]])
    events: list[tuple[str, dict[str, object]]] = field(default_factory=list[tuple[str, dict[str, object]]])

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.steps]

    def payloads(self, method: str) -> list[dict[str, object]]:
        return [payload for asked, payload in self.steps if asked == method]

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.tools]


@contextlib.asynccontextmanager
async def governed(folder: Path, rules: bytes = ALLOW) -> AsyncGenerator[InProcessLink]:
    """A real Guardian under these rules."""
    store = SqliteGuardianStore(folder / "guardian.db")
    guardian = Guardian(store=store, engine=CelEngine(parse_rules(rules)), clock=SystemClock())
    await guardian.start()
    try:
        yield InProcessLink(guardian, Door("in_process", KEYRING))
    finally:
        await guardian.stop()


async def approve(made: Rig, turn_id: str) -> None:
    """Says yes once the turn waits and has no boxes any more."""
    turn = await made.until(turn_id, lambda turn: turn.status == "paused")
    await made.freed(turn_id)
    (asked,) = (await made.store.approvals(PageRequest(), status="pending", session_id=turn.session_id)).items
    await made.store.decide_approval(asked.id, ApprovalAnswer("approve", DecidedBy("user", "somebody")))


async def play(
    folder: Path,
    server: McpServer,
    *calls: tuple[str, Mapping[str, object]],
    rules: bytes = ALLOW,
    permissions: dict[str, Permission] | None = None,
    turns: int = 1,
    mcp_timeout_ms: int = 20_000,
    allow: tuple[str, ...] = (),
    web: WayOut = nowhere,
    approves: bool = False,
) -> Played:
    """Turns in which the agent makes these calls, which a person allows; the last one is what is told of."""
    played = Played()

    async def body(harness: ScriptedHarness) -> None:
        start = await harness.begin()
        played.tools = list(start.tools)
        for number, (name, arguments) in enumerate(calls):
            heard = await harness.ask(ToolRequest(f"c{number}", name, orjson.dumps(arguments).decode()))
            assert isinstance(heard, ToolResult)
            played.results.append(heard)
        await harness.report("done")

    async with (
        governed(folder, rules) as link,
        running(BwrapDriver, settings(folder)) as driver,
        rig(folder, body, link=link, governor=PATIENT, start=False) as made,
    ):
        boxes = WorkerBoxes(driver, BoxOrders(HarnessSettings(), {}, order_of))
        timed = replace(SETTINGS, mcp_timeout_ms=mcp_timeout_ms, tool_timeout_ms=mcp_timeout_ms, pause_warm_ms=0)
        made.bench = replace(made.bench, boxes=RealToolBoxes(made, boxes, web), settings=timed)
        made.worker = Worker(made.bench)
        made.work()
        agent = NewAgent(
            "agent",
            ModelChoice("stub", "model"),
            "",
            (),
            AgentLimits(),
            "{}",
            permissions=permissions or {},
            mcp_servers=(server,),
            network=Network(allow),
        )
        session = await made.store.create_session(
            NewSession((await made.store.create_agent(agent)).id, None, "{}", None)
        )
        for _ in range(turns):
            played.results.clear()
            turn_id = await made.post(session)
            if approves:
                await approve(made, turn_id)
            last = await made.ended(turn_id)
            played.turn = last
            played.events = [(event.type, orjson.loads(event.data)) for event in await made.events(last)]
        await made.settled(session.id)
        played.steps = [
            (step.method, orjson.loads(step.payload_json or "{}")) for step in await made.store.steps(session.id)
        ]
    return played
