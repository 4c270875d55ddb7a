"""From `starting` to `running` (contract 6, rows 8 to 11): a loop box, its model socket, and the harness's word.

Answers for at most `MAX_START_TRIES` tries, each under a fence of its own, and for leaving nothing behind of a try that
failed. No agent code has run before `Started`, which is why trying again is free.
"""

from collections.abc import Mapping
from pathlib import Path

import structlog

from turnkeeper.clock import epoch_ms
from turnkeeper.errors import LocalProtocolError, TurnkeeperError
from turnkeeper.events import catalogue
from turnkeeper.events.envelope import NewEvent
from turnkeeper.sandbox.protocol import HarnessProtocolError, Start, Started, ToolSpec
from turnkeeper.turns.box_ports import GatewayHandle, LoopBox, LoopOrder, TurnMeter
from turnkeeper.turns.equipment import Equipment
from turnkeeper.turns.history import rebuild_history
from turnkeeper.turns.inputs import received_files, received_text
from turnkeeper.turns.lease import Lease
from turnkeeper.turns.lifecycle import MAX_START_TRIES
from turnkeeper.turns.model import Agent, Claim, Turn
from turnkeeper.turns.ports import StaleFence, StoreUnavailable
from turnkeeper.turns.resuming import Resumed, resumed_frame
from turnkeeper.turns.subagents import delegation_tools
from turnkeeper.turns.timing import whole, within
from turnkeeper.turns.workbench import Workbench
from turnkeeper.turns.workspace_files import deliver

_log = structlog.get_logger(__name__)


def offered_tools(agent: Agent, known: Mapping[str, ToolSpec]) -> list[ToolSpec]:
    """The tools that an agent's model is told about: those of the tool box, those that the app runs, its subagents."""
    of_app = [ToolSpec(tool.name, tool.description, dict(tool.parameters)) for tool in agent.client_tools]
    return [*(known[name] for name in agent.tools if name in known), *of_app, *delegation_tools(agent)]


class Starter:
    """Brings one claimed turn from the front to `running`."""

    def __init__(
        self,
        bench: Workbench,
        claim: Claim,
        lease: Lease,
        meter: TurnMeter,
        *,
        equipment: Equipment,
        resumed: Resumed | None = None,
    ) -> None:
        self._bench = bench
        self._equipment = equipment
        self._resumed = resumed
        self._claim = claim
        self._lease = lease
        self._meter = meter
        self._box: LoopBox | None = None
        self._handle: GatewayHandle | None = None
        self._since_ms = 0
        self.released: list[NewEvent] = []

    @property
    def attached(self) -> tuple[LoopBox, GatewayHandle]:
        """The box and the model socket of a turn that was started."""
        if self._box is None or self._handle is None:
            raise LocalProtocolError("the turn was not started")
        return self._box, self._handle

    async def dispatch(self) -> Turn:
        """Row 8: the turn leaves the queue, unless somebody asked it to stop meanwhile."""
        turn = self._claim.turn
        queue_ms = epoch_ms(self._bench.clock.now()) - epoch_ms(turn.created_at)
        event = catalogue.turn_starting(
            turn_id=turn.id, queue_ms=max(queue_ms, 0), try_number=1, sandbox_kind=self._box_kind
        )
        return await self._bench.store.starting(self._lease.fence, [event])

    async def start(self, turn: Turn) -> Turn | None:
        """The turn as it is when its harness has begun, or None once the tries are used (row 11).

        May be canceled. Raises `StaleFence`, `StoreUnavailable`.
        """
        while True:
            try:
                await self._try(turn)
                return turn
            except (StaleFence, StoreUnavailable):
                raise
            except (TurnkeeperError, TimeoutError) as error:
                diagnostics = "" if self._box is None else self._box.diagnostics
                _log.warning("sandbox_start_failed", turn_id=turn.id, error=repr(error), diagnostics=diagnostics)
            await self.detach()
            if turn.tries >= MAX_START_TRIES:
                return None
            turn = await whole(self._lease.renumber())

    async def begin(self, turn: Turn) -> Turn:
        """Row 9, once `start` has returned. A cancel waits for it: half of it would be a turn that runs unseen."""
        box, _ = self.attached
        return await self._bench.store.started(self._lease.fence, self._news(turn, box), resumed=self._from_pause)

    async def detach(self) -> None:
        """Closes the model socket and ends the box; returns when its processes are gone."""
        handle, self._handle = self._handle, None
        box, self._box = self._box, None
        try:
            if handle is not None:
                await handle.close()
        finally:
            if box is not None:
                await self._kill(box)

    async def _kill(self, box: LoopBox) -> None:
        try:
            await box.kill()
        except TurnkeeperError as error:
            _log.error("loop_box_not_gone", sandbox_id=box.sandbox_id, error=str(error))
            return
        lifetime_ms = self._bench.clock.monotonic_ms() - self._since_ms
        self.released.append(
            catalogue.sandbox_released(turn_id=self._claim.turn.id, sandbox_id=box.sandbox_id, lifetime_ms=lifetime_ms)
        )

    async def _try(self, turn: Turn) -> None:
        bench, timeout_ms = self._bench, self._bench.settings.start_timeout_ms
        box = await within(bench.waiter, self._loop_box(turn), timeout_ms=timeout_ms)
        self._box, self._since_ms = box, bench.clock.monotonic_ms()
        self._equipment.egress.sandbox_id = box.sandbox_id
        opening = bench.gateway.open(box.socket_dir, self._claim.agent.model, self._meter)
        self._handle = await within(bench.waiter, opening, timeout_ms=timeout_ms)
        await box.send(await self._frame(turn, box.gateway_socket))
        frame = await within(bench.waiter, box.receive(), timeout_ms=timeout_ms)
        if not isinstance(frame, Started) or frame.turn_id != turn.id:
            raise HarnessProtocolError("the harness did not begin with `started` for its turn")

    async def _loop_box(self, turn: Turn) -> LoopBox:
        bench, agent = self._bench, self._claim.agent
        workspace = bench.workspaces / turn.session_id
        if agent.harness.is_client:
            # Its loop has the workspace from the start, so what the turn came with has to be there by then.
            workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
            await deliver(workspace, await received_files(bench.store, turn), bench.contents)
        return await bench.boxes.loop_box(self._order(agent, workspace))

    def _order(self, agent: Agent, workspace: Path) -> LoopOrder:
        return LoopOrder(agent.harness, workspace, agent.sandbox, agent.model, pool=agent.pool, fence=self._lease.fence)

    @property
    def _box_kind(self) -> str:
        return self._claim.agent.box_kind(self._bench.boxes.kind)

    async def _frame(self, turn: Turn, gateway_socket: str) -> Start:
        bench, agent = self._bench, self._claim.agent
        mode = bench.output_mode_of(agent.model)
        without = None if turn.attempt else turn.id
        events = await bench.store.history(turn.session_id, without=without, limit=bench.settings.history_events)
        received = await received_text(bench.store, turn)
        if received is None:
            raise LocalProtocolError("no input of the turn was let through")
        tools = await self._tools()
        start = Start(
            turn_id=turn.id,
            attempt=self._attempt(turn),
            instructions=self._equipment.skills.added_to(agent.instructions),
            input=received,
            model=agent.model.id,
            gateway_socket=gateway_socket,
            output_mode=mode,
            output_schema=turn.output_schema_json,
            params=dict(agent.model.params),
            tools=tools,
            history=rebuild_history(events, max_bytes=bench.settings.history_bytes),
            max_model_calls=bench.settings.max_model_calls,
            stream=agent.stream_before_decision and bench.texts is not None,
            wire=bench.wire_of(agent.model),
            tool_calling=bench.tool_calling_of(agent.model),
            context_tokens=bench.window_of(agent.model),
        )
        if self._resumed is None:
            return start
        return resumed_frame(start, self._resumed, events, max_bytes=bench.settings.history_bytes)

    async def _tools(self) -> list[ToolSpec]:
        equipment = self._equipment
        await equipment.skills.open()
        await equipment.servers.open()
        offered = offered_tools(self._claim.agent, self._bench.tools)
        return [*offered, *equipment.skills.specs, *equipment.servers.specs]

    def _attempt(self, turn: Turn) -> int:
        # Going on after a pause is no other attempt: nothing is done again.
        return turn.attempt if self._from_pause else turn.attempt + 1

    @property
    def _from_pause(self) -> bool:
        return self._resumed is not None and self._resumed.pause is not None

    def _news(self, turn: Turn, box: LoopBox) -> list[NewEvent]:
        ready = catalogue.sandbox_ready(
            turn_id=turn.id,
            sandbox_id=box.sandbox_id,
            kind=self._box_kind,
            start_ms=box.start_ms,
            warm=box.warm,
        )
        started = catalogue.turn_started(
            turn_id=turn.id,
            attempt=self._attempt(turn),
            sandbox_id=box.sandbox_id,
            start_ms=box.start_ms,
            warm=box.warm,
        )
        return [ready, started]
