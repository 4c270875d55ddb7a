"""Boxes and a model gateway for tests: a harness is a coroutine, a tool is a function, and what was done is recorded.

Keeps the promises of the drivers: a box ends when its harness returns, `receive` raises then, `kill` is idempotent and
nothing of a killed box goes on. There is no isolation and no model.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from turnkeeper.errors import TurnkeeperError
from turnkeeper.ids import IdSource
from turnkeeper.sandbox.protocol import FromHarness, Report, Start, Started, ToHarness
from turnkeeper.turns.box_ports import BoxEndReason, LoopOrder, ModelFailure, NetworkOrder, ToolRunStatus, TurnMeter
from turnkeeper.turns.model import BoxSize, CallRecord, ModelChoice
from turnkeeper.turns.ports import BudgetSpent
from turnkeeper.turns.timing import stop_task

ToolFunction: TypeAlias = Callable[[str, Mapping[str, object]], Awaitable["ScriptedOutcome"]]


class ScriptedBoxLost(TurnkeeperError):
    """The box has ended."""

    code = "sandbox_lost"


class ScriptedUnavailable(TurnkeeperError):
    """No box could be started."""

    code = "sandbox_unavailable"


@dataclass(frozen=True, slots=True)
class ScriptedOutcome:
    """What a tool gave."""

    status: ToolRunStatus = "ok"
    text: str = ""
    truncated: bool = False
    duration_ms: int = 1


@dataclass(frozen=True, slots=True)
class ScriptedFailure:
    """Why the last model call failed."""

    code: str
    message: str
    retryable: bool


class ScriptedHarness:
    """The inside of a loop box: what a script uses to talk to the worker and to the model."""

    def __init__(self, gateway: "RecordingGateway") -> None:
        self.gateway = gateway
        self.inbox: asyncio.Queue[ToHarness] = asyncio.Queue()
        self.outbox: asyncio.Queue[FromHarness | TurnkeeperError] = asyncio.Queue()

    async def begin(self) -> Start:
        """Waits for `Start` and answers `Started`."""
        start = await self.receive()
        if not isinstance(start, Start):
            raise TypeError(f"expected a start, got {start!r}")
        self.send(Started(start.turn_id))
        return start

    async def receive(self) -> ToHarness:
        """The worker's next frame."""
        return await self.inbox.get()

    def send(self, frame: FromHarness) -> None:
        """A frame to the worker."""
        self.outbox.put_nowait(frame)

    def corrupt(self, error: TurnkeeperError) -> None:
        """What the worker gets in place of a frame that no protocol has."""
        self.outbox.put_nowait(error)

    async def ask(self, frame: FromHarness) -> ToHarness:
        """A frame to the worker, and its answer."""
        self.send(frame)
        return await self.receive()

    async def call_model(self, *, input_tokens: int = 10, output_tokens: int = 5) -> bool:
        """One metered model call; False where the budget refused it."""
        return await self.gateway.call(input_tokens=input_tokens, output_tokens=output_tokens)

    async def report(self, text: str, *, result: str | None = None) -> ToHarness:
        """A completed report, and what the worker says to it."""
        return await self.ask(Report("completed", "end_turn", text, result, None, {}, 0))


HarnessScript: TypeAlias = Callable[[ScriptedHarness], Awaitable[None]]


class ScriptedLoopBox:
    """A loop box whose harness is a script."""

    def __init__(self, sandbox_id: str, script: HarnessScript, gateway: "RecordingGateway") -> None:
        self.sandbox_id = sandbox_id
        self.socket_dir = Path("/nonexistent")
        self.gateway_socket = "/run/gateway/gateway.sock"
        self.warm = True
        self.start_ms = 1
        self.diagnostics = ""
        self.end_reason: BoxEndReason | None = None
        self.gone = asyncio.Event()
        self._harness = ScriptedHarness(gateway)
        self._life = asyncio.ensure_future(self._live(script))

    async def send(self, frame: ToHarness) -> None:
        """Raises `ScriptedBoxLost` once the script has ended."""
        if self._life.done():
            raise ScriptedBoxLost("the box has ended")
        self._harness.inbox.put_nowait(frame)

    async def receive(self) -> FromHarness:
        """The harness's next frame. Raises `ScriptedBoxLost` at the end."""
        frame = await self._harness.outbox.get()
        if isinstance(frame, TurnkeeperError):
            raise frame
        return frame

    async def kill(self) -> None:
        """Ends the script."""
        await stop_task(self._life)
        self.gone.set()

    async def _live(self, script: HarnessScript) -> None:
        try:
            await script(self._harness)
        finally:
            self._harness.outbox.put_nowait(ScriptedBoxLost("the box has ended"))


class ScriptedToolBox:
    """A tool box whose tools are one function."""

    def __init__(self, sandbox_id: str, workspace: Path, run: ToolFunction) -> None:
        self.sandbox_id = sandbox_id
        self.workspace = workspace
        self.end_reason: BoxEndReason | None = None
        self.gone = asyncio.Event()
        self.stands_still = False
        self._run = run

    async def call(
        self, tool: str, arguments: Mapping[str, object], *, timeout_ms: int, max_output_bytes: int
    ) -> ScriptedOutcome:
        """What the function gives."""
        del timeout_ms, max_output_bytes
        if self.stands_still:
            raise ScriptedUnavailable("a box that is suspended runs nothing")
        return await self._run(tool, arguments)

    async def suspend(self) -> bool:
        """Notes it."""
        self.stands_still = True
        return True

    async def resume(self) -> None:
        """Notes it."""
        self.stands_still = False

    async def kill(self) -> None:
        """Notes it."""
        self.gone.set()


class RecordingSandbox:
    """`Boxes` for tests. `scripts` are used one per loop box, the last one for all that follow."""

    def __init__(self, ids: IdSource, gateway: "RecordingGateway", *scripts: HarnessScript) -> None:
        self._ids = ids
        self._gateway = gateway
        self._scripts = list(scripts)
        self.kind = "none"
        self.failing_starts = 0
        self.loop_boxes: list[ScriptedLoopBox] = []
        self.tool_boxes: list[ScriptedToolBox] = []
        self.calls: list[tuple[str, Mapping[str, object]]] = []
        self.sizes: list[BoxSize] = []
        self.orders: list[LoopOrder] = []
        self.networks: list[NetworkOrder | None] = []
        self.skills: list[Path | None] = []
        self.tool: ToolFunction = _echo

    async def loop_box(self, order: LoopOrder) -> ScriptedLoopBox:
        """A new box. Raises `ScriptedUnavailable` as often as `failing_starts` says."""
        self.orders.append(order)
        if self.failing_starts > 0:
            self.failing_starts -= 1
            raise ScriptedUnavailable("no box to be had")
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        box = ScriptedLoopBox(self._ids.new("sbx"), script, self._gateway)
        self.loop_boxes.append(box)
        return box

    async def tool_box(
        self, workspace: Path, size: BoxSize, network: NetworkOrder | None = None, *, skills: Path | None = None
    ) -> ScriptedToolBox:
        """A new box on that workspace."""
        self.sizes.append(size)
        self.networks.append(network)
        self.skills.append(skills)

        async def run(tool: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
            self.calls.append((tool, arguments))
            return await self.tool(tool, arguments)

        box = ScriptedToolBox(self._ids.new("sbx"), workspace, run)
        self.tool_boxes.append(box)
        return box

    def web(self, network: NetworkOrder) -> None:
        """There is no way out of here."""
        del network

    @property
    def left_behind(self) -> list[str]:
        """Boxes that nobody killed."""
        return [box.sandbox_id for box in (*self.loop_boxes, *self.tool_boxes) if not box.gone.is_set()]


class RecordingGateway:
    """`Gateway` for tests: each call is reserved, answered at once, settled."""

    def __init__(self) -> None:
        self.last_error: ModelFailure | None = None
        self.budget_reached = False
        self.opened = 0
        self.closed = 0
        self._meter: TurnMeter | None = None
        self._model = ModelChoice("none", "none")

    async def open(self, socket_dir: Path, model: ModelChoice, meter: TurnMeter) -> "RecordingGateway":
        """The gateway itself: it serves one turn at a time."""
        del socket_dir
        self._meter, self._model = meter, model
        self.last_error, self.budget_reached = None, False
        self.opened += 1
        return self

    async def close(self) -> None:
        """Notes it."""
        if self._meter is not None:
            self.closed += 1
            self._meter = None

    async def call(self, *, input_tokens: int, output_tokens: int) -> bool:
        """One model call of the turn; False where the budget refused it."""
        if self._meter is None:
            raise ScriptedBoxLost("the model socket is closed")
        meter = self._meter
        try:
            grant = await meter.reserve(input_tokens=input_tokens, max_output_tokens=1_000)
        except BudgetSpent:
            self.budget_reached = True
            return False
        await meter.settle(self._record(grant.call, input_tokens, output_tokens))
        return True

    def _record(self, call: int, input_tokens: int, output_tokens: int) -> CallRecord:
        return CallRecord(
            call=call,
            provider=self._model.provider,
            model=self._model.id,
            accepted=True,
            input_tokens=input_tokens,
            cached_input_tokens=0,
            cache_write_tokens=0,
            output_tokens=output_tokens,
            reasoning_tokens=0,
            estimated=False,
            latency_ms=1,
            first_token_ms=None,
            finish_reason="stop",
            retries=0,
        )


async def _echo(tool: str, arguments: Mapping[str, object]) -> ScriptedOutcome:
    return ScriptedOutcome(text=f"{tool} ran with {sorted(arguments)}")
