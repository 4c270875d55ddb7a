"""A task handed to a subagent (contract 10.3, 16.3; CORE-SUB-01 to 07): asked, lived, told of, answered.

Answers for a start that the parent's chain shows, for a session and a chain of the subagent's own in which all that it
does is asked, for the turn's one ledger, and for an answer that was let through in the subagent's chain before it is
asked about as the tool's result in its parent's. Must never start what was not allowed, nor give a subagent a tool
that its agent has not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import structlog

from turnkeeper.acs import JsonValue, Marks
from turnkeeper.events import catalogue
from turnkeeper.events.envelope import NewEvent
from turnkeeper.events.subagents import SubagentOutcome, subagent_started
from turnkeeper.sandbox.protocol import (
    FromHarness,
    HarnessProtocolError,
    SubagentReport,
    SubagentTask,
    TextDelta,
    ToHarness,
    ToolRequest,
    ToolResult,
    ToolSpec,
)
from turnkeeper.turns import payloads
from turnkeeper.turns.applied import text_of
from turnkeeper.turns.approvals import PendingCall
from turnkeeper.turns.exchange import Party
from turnkeeper.turns.governor import EventsFor, no_events
from turnkeeper.turns.meter import LedgerMeter
from turnkeeper.turns.model import Agent, Claim, Draft, Fence, Subagent, Turn
from turnkeeper.turns.rulings import Ruling
from turnkeeper.turns.thread_steps import start_payload
from turnkeeper.turns.threads import Fate, closing_of_threads
from turnkeeper.turns.tool_runs import ToolOutput, cut_text
from turnkeeper.turns.tool_step import Thread, ToolSteps
from turnkeeper.turns.workbench import Workbench

MAX_SUBAGENTS: Final = 16
"""Tasks that one turn hands out. A subagent hands out none."""
TASK: Final = "task"

_PARAMETERS: Final[dict[str, object]] = {
    "type": "object",
    "properties": {
        TASK: {
            "type": "string",
            "description": "All that it needs to know: it sees nothing of this conversation, and answers once.",
        }
    },
    "required": [TASK],
    "additionalProperties": False,
}

_log = structlog.get_logger(__name__)


class Talk(Protocol):
    """The harness, as far as a subagent's loop needs it."""

    async def send(self, frame: ToHarness) -> None:
        """Raises where the box cannot be used any more."""
        ...

    async def receive(self) -> FromHarness:
        """Raises where the box cannot be used any more."""
        ...

    def with_notice(self, result: ToolResult) -> ToolResult:
        """The result; with word of a budget that is almost used."""
        ...

    def obeyed(self) -> None:
        """The harness has stopped what it was to stop: what follows is the platform's time."""
        ...


@dataclass(frozen=True, slots=True)
class _Life:
    """One subagent that was let start."""

    subagent: Subagent
    party: Party
    task: str


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How a subagent ended, and what its parent is told of it."""

    outcome: SubagentOutcome
    output: ToolOutput


def delegation_tools(agent: Agent) -> list[ToolSpec]:
    """The subagents of an agent as its model is told about them: tools that take a task."""
    return [ToolSpec(one.name, one.description, _PARAMETERS) for one in agent.subagents]


class Subagents:
    """The subagents of one turn, one at a time. `run` is a tool call that was allowed."""

    def __init__(
        self,
        bench: Workbench,
        claim: Claim,
        turn: Turn,
        fence: Callable[[], Fence],
        *,
        talk: Talk,
        tools: ToolSteps,
        meter: LedgerMeter,
    ) -> None:
        self._bench = bench
        self._agent = claim.agent
        self._turn = turn
        self._fence = fence
        self._talk = talk
        self._tools = tools
        self._meter = meter
        self._known = {one.name: one for one in claim.agent.subagents}

    async def run(self, call: PendingCall, arguments: Mapping[str, JsonValue]) -> ToolOutput:
        """What the subagent answered. Raises `StaleFence`."""
        since_ms = self._bench.clock.monotonic_ms()
        task = arguments.get(TASK)
        if not isinstance(task, str) or not task.strip():
            return _not_run("error", f"not run: `{TASK}` is the text of the task, and there is none")
        if await self._begun() >= MAX_SUBAGENTS:
            return _not_run("error", f"not run: a turn hands out at most {MAX_SUBAGENTS} tasks")
        subagent, thread_id = self._known[call.name], self._bench.ids.new("thr")
        ruling = await self._start(subagent, thread_id, call)
        if not ruling.allowed:
            return _not_run("denied", f"denied: {ruling.reasoning or 'no reason given'}")
        party = Party(self._turn.session_id, self._turn.agent_id, thread_id)
        ended = await self._lived(_Life(subagent, party, task))
        await self.close(Fate(ended.outcome, "sandbox"))
        return replace(ended.output, duration_ms=self._bench.clock.monotonic_ms() - since_ms)

    async def close(self, fate: Fate) -> None:
        """Ends the subagent that is open, if one is. Raises `StaleFence`."""
        closing = await closing_of_threads(self._bench, self._turn, fate)
        if closing.steps:
            await self._bench.governor.owe(self._fence(), closing.steps, closing.events)

    async def _begun(self) -> int:
        steps = await self._bench.store.steps(self._turn.session_id, turn_id=self._turn.id)
        return sum(step.method == payloads.SUBAGENT_START for step in steps)

    async def _start(self, subagent: Subagent, thread_id: str, call: PendingCall) -> Ruling:
        turn = self._turn
        payload_json = start_payload(turn, self._agent, subagent, thread_id, call.request_id or call.tool_call_id)
        started = subagent_started(
            turn_id=turn.id,
            attempt=turn.attempt,
            thread_id=thread_id,
            name=subagent.name,
            tool_call_id=call.tool_call_id,
        )
        return await self._bench.governor.ask(
            self._tools.party,
            Draft(self._bench.ids.uuid(), payloads.SUBAGENT_START, lambda _: payload_json, True, turn.id),
            self._fence(),
            events_for=lambda ruling: [started] if ruling.allowed else [],
        )

    async def _lived(self, life: _Life) -> _Outcome:
        self._meter.thread_id = life.party.thread_id
        try:
            task = await self._admitted(life)
            return task if isinstance(task, _Outcome) else await self._conversed(replace(life, task=task))
        finally:
            self._meter.thread_id = None

    async def _admitted(self, life: _Life) -> _Outcome | str:
        """The task as the subagent may read it, once its session is open."""
        greeted = await self._bench.governor.greet(life.party)
        if not greeted.allowed:
            return _refused(greeted)
        start = payloads.session_start(sandbox_kind=self._bench.boxes.kind)
        agbom = payloads.agbom_snapshot(self._as_agent(life.subagent))
        turn_start = payloads.turn_start(self._turn.id, triggered_by="agent_loop")
        for method, payload_json in (
            (payloads.SESSION_START, start),
            (payloads.AGBOM_SNAPSHOT, agbom),
            (payloads.TURN_START, turn_start),
        ):
            ruling = await self._ask(life, method, _fixed(payload_json), in_window=False)
            # A Guardian that does not look at bills of materials decides nothing by them.
            if not ruling.allowed and (ruling.kind, method) != ("not_evaluated", payloads.AGBOM_SNAPSHOT):
                return _refused(ruling)
        ruling = await self._ask(life, payloads.USER_MESSAGE, lambda marks: payloads.handed_task(marks, life.task))
        if not ruling.allowed:
            return _refused(ruling)
        return life.task if ruling.changed is None else text_of(ruling.changed)

    async def _conversed(self, life: _Life) -> _Outcome:
        specs = [self._bench.tools[name] for name in life.subagent.tools if name in self._bench.tools]
        thread_id = life.party.thread_id or ""
        with self._tools.of_thread(Thread(thread_id, frozenset(life.subagent.tools))) as tools:
            order = SubagentTask(thread_id, life.subagent.name, life.subagent.instructions, life.task, specs)
            await self._talk.send(order)
            while True:
                frame = await self._talk.receive()
                match frame:
                    case TextDelta():
                        # Nobody follows a subagent while it writes.
                        continue
                    case ToolRequest():
                        await self._talk.send(self._talk.with_notice(await tools.handle(frame)))
                    case SubagentReport() if frame.thread_id == thread_id:
                        self._talk.obeyed()
                        return await self._reported(life, frame)
                    case _:
                        raise HarnessProtocolError(f"the harness sent {frame.type} while a subagent is at work")

    async def _reported(self, life: _Life, report: SubagentReport) -> _Outcome:
        if report.stop_reason in {"agent_error", "model_error"}:
            # What the harness writes about its failure may quote anything; it goes to the log and no further.
            _log.warning("subagent_failed", turn_id=self._turn.id, name=life.subagent.name, error=report.error)
            told = "the subagent's model failed" if report.stop_reason == "model_error" else "the subagent failed"
            return _Outcome("failed", ToolOutput("error", told, False, 0, by_platform=True))
        text, cut = cut_text(report.text, self._bench.settings.tool_output_bytes)

        def write(marks: Marks) -> str:
            return payloads.agent_response(marks, text, None)

        ruling = await self._ask(
            life,
            payloads.AGENT_RESPONSE,
            write,
            events_for=lambda ruling: self._message(life, ruling, text),
        )
        if not ruling.allowed:
            return _refused(ruling)
        if ruling.changed is not None:
            text, cut = cut_text(text_of(ruling.changed), self._bench.settings.tool_output_bytes)
        reached = self._meter.spent or report.stop_reason == "budget_reached"
        return _Outcome("budget_reached" if reached else "completed", ToolOutput("ok", text, cut, 0))

    def _message(self, life: _Life, ruling: Ruling, text: str) -> Sequence[NewEvent]:
        if not ruling.allowed:
            return ()
        turn, message_id = self._turn, self._bench.ids.new("msg")
        said = text if ruling.changed is None else text_of(ruling.changed)
        shown, _ = cut_text(said, self._bench.settings.inline_bytes)
        began = catalogue.message_started(turn_id=turn.id, attempt=turn.attempt, message_id=message_id)
        completed = catalogue.message_completed(
            turn_id=turn.id, attempt=turn.attempt, message_id=message_id, text=shown, final=False
        )
        return [replace(event, thread_id=life.party.thread_id) for event in (began, completed)]

    async def _ask(
        self,
        life: _Life,
        method: str,
        write: Callable[[Marks], str],
        *,
        in_window: bool = True,
        events_for: EventsFor = no_events,
    ) -> Ruling:
        thread_id = life.party.thread_id
        step = Draft(self._bench.ids.uuid(), method, write, in_window, self._turn.id, thread_id=thread_id)
        return await self._bench.governor.ask(life.party, step, self._fence(), events_for=events_for)

    def _as_agent(self, subagent: Subagent) -> Agent:
        tools = tuple(name for name in subagent.tools if name in self._agent.tools)
        return replace(self._agent, name=subagent.name, tools=tools, mcp_servers=(), skills=())


def _fixed(text: str) -> Callable[[Marks], str]:
    return lambda _: text


def _not_run(status: str, text: str) -> ToolOutput:
    return ToolOutput("denied" if status == "denied" else "error", text, False, 0, by_platform=True)


def _refused(ruling: Ruling) -> _Outcome:
    text = f"denied: {ruling.reasoning or 'no reason given'}"
    return _Outcome("failed", ToolOutput("denied", text, False, 0, by_platform=True))
