"""One governed tool call (contract 16.3): asked, run, asked again, and only then told to the agent.

Answers for the order and for what is written together: [ask, tool.requested] - Guardian - [answer, tool.decided,
tool.started] - the tool - [ask] - Guardian - [answer, tool.completed]. Must never run what was not allowed, nor
tell the agent an output that was not allowed; where the Guardian changed arguments or output, only what it made of them
is used. A call of a tool the agent does not have, and one whose arguments are no JSON object, never leaves the agent:
it is answered here, without a step and without an event.

A call that has to wait (an ASK, a DEFER, the agent's own permissions, a tool that the app runs) is the same call when
it goes on, in this process or in another one days later: `_go_on` takes what became of it and nothing from memory.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import structlog

from turnkeeper.acs import JsonLimits, JsonObject, JsonRejected, JsonValue, Marks, minify, parse_object
from turnkeeper.clock import epoch_ms
from turnkeeper.events.catalogue import DecidedBy, ToolEnd
from turnkeeper.events.envelope import NewEvent
from turnkeeper.sandbox.protocol import ToolRequest, ToolResult
from turnkeeper.turns import payloads
from turnkeeper.turns.applied import arguments_of, input_of, output_of
from turnkeeper.turns.approvals import Approval, PendingCall, ToolKind
from turnkeeper.turns.artifacts import Artifacts
from turnkeeper.turns.equipment import Equipment
from turnkeeper.turns.exchange import Party
from turnkeeper.turns.holding import Pauses
from turnkeeper.turns.model import Claim, Draft, Fence, NewStep, Turn
from turnkeeper.turns.pausing import NewPause, Pause, hash_of
from turnkeeper.turns.permissions import permission_for
from turnkeeper.turns.ports import BudgetSpent
from turnkeeper.turns.remembered import Remembered
from turnkeeper.turns.rulings import Ruling
from turnkeeper.turns.tool_news import ToolNews
from turnkeeper.turns.tool_runs import ToolOutput, cut_text
from turnkeeper.turns.workbench import Workbench

MAX_UTF8_BYTES: Final = 4
MAX_ARGUMENT_DEPTH: Final = 32
"""An envelope is itself a few levels deep, and a Guardian takes 64."""
MAX_ARGUMENTS: Final = 1_000
"""Each argument carries provenance of its own, and becomes a source of what the agent says next."""

CANNOT_WAIT: Final = "it has to be asked about first, and a subagent cannot wait for an answer"

_EXIT_STATUS: Final[Mapping[str, payloads.ExitStatus]] = {
    "ok": "success",
    "error": "failure",
    "timeout": "timeout",
    "denied": "blocked",
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that was announced and has no `tool.completed` yet."""

    call: PendingCall
    since_ms: int


class RunsInside(Exception):
    """A call was allowed, with these arguments, and it is the client in the box that carries it out."""

    def __init__(self, call: PendingCall, arguments: Mapping[str, JsonValue]) -> None:
        super().__init__(call.name)
        self.call = call
        self.arguments = arguments


@dataclass(frozen=True, slots=True)
class Thread:
    """A subagent as a caller of tools: its own chain, some of the agent's tools, and nobody it can wait for."""

    id: str
    tools: frozenset[str]


Delegate: TypeAlias = Callable[[PendingCall, Mapping[str, JsonValue]], Awaitable[ToolOutput]]


class ToolSteps:
    """The tool calls of one turn, or of a subagent. `resumed` is the pause that the turn comes back from.

    `on_spent` hears that a budget for tool calls is reached. `delegate` carries out a call that is a task for a
    subagent. With `thread` they are a subagent's calls, which run in the turn's tool box.
    """

    def __init__(
        self,
        bench: Workbench,
        claim: Claim,
        turn: Turn,
        fence: Callable[[], Fence],
        *,
        equipment: Equipment,
        pauses: Pauses,
        on_spent: Callable[[], None],
        resumed: Pause | None = None,
        thread: Thread | None = None,
    ) -> None:
        self._bench = bench
        self._claim = claim
        self._turn = turn
        self._thread = thread
        self.delegate: Delegate | None = None
        self._permissions = claim.agent.permissions
        self._inside = claim.agent.brings_tools
        self._shares_workspace = claim.agent.harness.is_client
        self._client_tools = frozenset(tool.name for tool in claim.agent.client_tools)
        self._subagents = frozenset(subagent.name for subagent in claim.agent.subagents)
        self._tools = self._offered(claim)
        self.party = Party(turn.session_id, turn.agent_id, None if thread is None else thread.id)
        self._fence = fence
        self._limits = JsonLimits(max_bytes=bench.settings.argument_bytes, max_depth=MAX_ARGUMENT_DEPTH)
        self._news = ToolNews(turn, bench.clock, bench.settings.inline_bytes, self.party.thread_id)
        equipment.egress.is_waiting = lambda: pauses.waiting
        self._equipment = equipment
        self._runs = equipment.runs
        self._servers = equipment.servers
        self._artifacts = Artifacts(bench, turn, claim.session.project_id)
        self._pauses = pauses
        self._on_spent = on_spent
        self._remembered = Remembered(bench.store, turn)
        self._resumed = resumed
        self._open = None if resumed is None else OpenCall(resumed.call, bench.clock.monotonic_ms())

    async def handle(self, request: ToolRequest) -> ToolResult:
        """What the agent gets for a call. Raises `StaleFence`, `Parked`, `NotContinued`."""
        if not (request.name in self._tools or self._has_server_for(request.name) or self._loads_skills(request.name)):
            return ToolResult(request.call_id, "error", f"unknown tool: {request.name[:100]}")
        output = await self.asked(request.name, request.arguments)
        self._open = None
        return ToolResult(request.call_id, output.status, output.text)

    @contextmanager
    def of_thread(self, thread: Thread) -> Generator["ToolSteps"]:
        """The calls of a subagent, which has the tool box until the end of the block."""
        steps = ToolSteps(
            self._bench,
            self._claim,
            self._turn,
            self._fence,
            equipment=self._equipment,
            pauses=self._pauses,
            on_spent=self._on_spent,
            thread=thread,
        )
        with self._runs.serving(steps.party):
            yield steps

    async def asked(self, name: str, written: str) -> ToolOutput:
        """What becomes of a call, whoever has the tool. Raises `RunsInside` and what `handle` raises."""
        try:
            arguments = parse_object(written.encode(), self._limits)
        except JsonRejected as error:
            return _refused(f"the arguments are not a usable JSON object: {error.message}")
        if len(arguments) > MAX_ARGUMENTS:
            return _refused(f"a call has at most {MAX_ARGUMENTS} arguments")
        input_json = minify(written)
        pause = await self._represented(name, input_json)
        return await (self._governed(name, input_json, arguments) if pause is None else self._go_on(pause))

    def take_open(self) -> OpenCall | None:
        """The call that is open now, which somebody else closes from here on."""
        taken, self._open = self._open, None
        return taken

    async def returned(self, opened: OpenCall, output: ToolOutput) -> ToolOutput:
        """What the agent may read of a call that the client carried out. Raises `StaleFence`."""
        self._open = opened
        told = await self._returned(opened.call, output)
        self._open = None
        return told

    def closed(self, opened: OpenCall, status: ToolEnd) -> NewEvent:
        """The end of a call that nobody told the result of."""
        return self._news.closed(opened.call, status, opened.since_ms)

    def closing_events(self, status: ToolEnd) -> list[NewEvent]:
        """Closes what is still open, and says which tool boxes are gone. For the terminal transaction."""
        closed = [] if self._open is None else [self._news.closed(self._open.call, status, self._open.since_ms)]
        self._open = None
        return [*closed, *self._runs.released]

    @property
    def used(self) -> bool:
        """Whether a box worked on the workspace in this turn, as far as this process knows."""
        return self._runs.used or self._shares_workspace

    async def close(self) -> None:
        """Ends the tool box and the MCP servers; returns when the processes are gone."""
        await self._equipment.close()

    async def _represented(self, name: str, input_json: str) -> Pause | None:
        """The call that the turn was paused for, if this is it; another one says that it is not wanted any more."""
        resumed, self._resumed = self._resumed, None
        if resumed is None or (name, input_json) == (resumed.call.name, resumed.call.input_json):
            return resumed
        _log.warning("pending_call_dropped", turn_id=self._turn.id, tool_call_id=resumed.call.tool_call_id)
        await self._bench.store.record(self._fence(), self.closing_events("canceled"))
        return None

    async def _governed(self, name: str, input_json: str, arguments: JsonObject) -> ToolOutput:
        call = PendingCall(self._bench.ids.new("tcl"), name, self._kind_of(name), input_json, hash_of(input_json))
        self._open = OpenCall(call, self._bench.clock.monotonic_ms())
        events = [self._news.requested(call)]
        permission = permission_for(self._permissions, name)
        if permission == "deny":
            return await self._denied_here(call, "agent_policy", f"the agent's permissions forbid {name}", events)
        if permission == "ask":
            if await self._remembered.rule(call, "agent_policy") is None:
                if self._thread is not None:
                    return await self._denied_here(call, "agent_policy", CANNOT_WAIT, events)
                events.append(self._news.decided(call, "ask", "agent_policy", ["the agent's permissions ask first"]))
                await self._pauses.ask_person(call, events)
                return await self._go_on(await self._outcome())
            events.append(self._news.decided(call, "allow", "rule"))
        # A grant names a step of the chain that it was given in.
        granted = None if self._thread is not None else await self._remembered.granted(call)
        return await self._asked(call, self._request(call, arguments), events, granted=granted)

    def _kind_of(self, name: str) -> ToolKind:
        if name in self._client_tools:
            return "client"
        if name in self._subagents:
            return "subagent"
        return "mcp" if self._has_server_for(name) else "builtin"

    def _has_server_for(self, name: str) -> bool:
        # The servers of an agent speak to it alone.
        return self._thread is None and self._servers.has(name)

    def _loads_skills(self, name: str) -> bool:
        # What an agent loads is in its own chain, so a subagent has it loaded.
        return self._thread is None and self._equipment.skills.has(name)

    async def _asked(
        self,
        call: PendingCall,
        step: Draft | NewStep,
        events: Sequence[NewEvent] = (),
        *,
        granted: str | None = None,
    ) -> ToolOutput:
        """The call as the Guardian has it. `granted` is sent in its place where it would be asked about once more."""
        call = replace(call, request_id=step.request_id)
        arguments = self._arguments(call)
        ruling = await self._bench.governor.ask(
            self.party,
            step,
            self._fence(),
            events=events,
            events_for=lambda ruling: self._decided(call, ruling, arguments),
            pause_for=lambda ruling: None if granted is not None else self._pause(call, ruling),
        )
        if granted is not None and self._may_wait(ruling):
            return await self._asked(call, self._step(granted))
        if self._pauses.waiting:
            return await self._go_on(await self._outcome())
        if not ruling.allowed:
            return self._denied(ruling)
        return await self._allowed(call, ruling)

    async def _allowed(self, call: PendingCall, ruling: Ruling) -> ToolOutput:
        arguments = self._arguments(call)
        try:
            if call.kind == "client":
                await self._bench.store.tool_allowed(self._fence())
            elif call.kind == "subagent" and self.delegate is not None:
                await self._bench.store.tool_ran(self._fence())
                return await self._returned(call, await self.delegate(call, arguments_after(ruling, arguments)))
            elif self._inside:
                await self._bench.store.tool_ran(self._fence())
                raise RunsInside(call, arguments_after(ruling, arguments))
            elif self._loads_skills(call.name):
                await self._bench.store.tool_ran(self._fence())
                given = arguments_after(ruling, arguments)
                loaded = await self._equipment.skills.load(given, call.request_id, attempt=self._turn.attempt)
                return await self._returned(call, loaded)
            else:
                runs = self._servers if call.kind == "mcp" else self._runs
                return await self._returned(call, await runs.run(call.name, arguments_after(ruling, arguments)))
        except BudgetSpent as spent:
            self._on_spent()
            return await self._returned(call, ToolOutput("canceled", f"not run: {spent.message}", False, 0))
        await self._pauses.ask_app(_call_after(ruling, call, arguments))
        return await self._go_on(await self._outcome())

    async def _outcome(self) -> Pause:
        # Where the turn ends while it waits, the store closes the call.
        waiting, self._open = self._open, None
        await self._runs.suspend()
        pause = await self._pauses.outcome()
        await self._runs.resume()
        self._open = waiting
        self._remembered.forget()
        return pause

    async def _go_on(self, pause: Pause) -> ToolOutput:
        call, approval = pause.call, pause.approval
        if approval is None:
            await self._bench.store.tool_answered(self._fence())
            return await self._returned(call, self._answered(pause))
        if approval.status != "approved":
            return await self._denied_here(call, "approval", _refusal(approval), [])
        if approval.modified_input_json is not None:
            return await self._modified(call, approval.modified_input_json)
        payload_json = await self._remembered.asked_payload(call)
        if payload_json is None:
            return await self._asked(call, self._request(call, self._arguments(call), approval.context_json))
        return await self._asked(call, self._step(_again(payload_json, call, approval)))

    async def _modified(self, call: PendingCall, input_json: str) -> ToolOutput:
        """An approver wants other arguments: that is another step, and nobody's yes to the first one covers it."""
        changed = replace(call, input_json=input_json, input_hash=hash_of(input_json), request_id=None)
        decided = self._news.decided(call, "modify", "approval", modified_input_json=input_json)
        return await self._asked(changed, self._request(changed, self._arguments(changed)), [decided])

    async def _denied_here(
        self, call: PendingCall, by: DecidedBy, reason: str, events: Sequence[NewEvent]
    ) -> ToolOutput:
        """Somebody other than the Guardian says no, so nothing leaves the agent."""
        denied = ToolOutput("denied", f"denied: {reason}", False, 0)
        decided = self._news.decided(call, "deny", by, [reason])
        await self._bench.store.record(self._fence(), [*events, decided, self._over(call, denied)])
        return denied

    async def _returned(self, call: PendingCall, output: ToolOutput) -> ToolOutput:
        def write(marks: Marks) -> str:
            return payloads.tool_call_result(
                marks,
                call.name,
                exit_status=_EXIT_STATUS.get(output.status, "failure"),
                output=output.text,
                request_id_ref=call.request_id or "",
                duration_ms=output.duration_ms,
                by_platform=output.is_ours,
            )

        keeps = await self._keeps(output)
        ruling = await self._bench.governor.ask(
            self.party,
            self._draft(payloads.TOOL_CALL_RESULT, write),
            self._fence(),
            events_for=lambda ruling: self._told(call, self._after(ruling, output), ruling, keeps=keeps),
        )
        return self._after(ruling, output) if ruling.allowed else self._denied(ruling)

    def _after(self, ruling: Ruling, output: ToolOutput) -> ToolOutput:
        """The output as the agent gets it."""
        if ruling.changed is None:
            return output
        text, cut = cut_text(output_of(ruling.changed), self._bench.settings.tool_output_bytes)
        return replace(output, text=text, truncated=output.truncated or cut, modified=True)

    def _arguments(self, call: PendingCall) -> JsonObject:
        return parse_object(call.input_json.encode(), self._limits)

    def _request(self, call: PendingCall, arguments: JsonObject, context_json: str | None = None) -> Draft:
        def write(marks: Marks) -> str:
            payload_json = payloads.tool_call_request(marks, call.name, arguments)
            if context_json is None:
                return payload_json
            return payloads.with_member(payload_json, payloads.ADDITIONAL_CONTEXT, context_json)

        return self._draft(payloads.TOOL_CALL_REQUEST, write)

    def _draft(self, method: str, write: Callable[[Marks], str]) -> Draft:
        turn_id, thread_id = self._turn.id, self.party.thread_id
        return Draft(self._bench.ids.uuid(), method, write, in_window=True, turn_id=turn_id, thread_id=thread_id)

    def _step(self, payload_json: str) -> NewStep:
        request_id = self._bench.ids.uuid()
        return NewStep(request_id, payloads.TOOL_CALL_REQUEST, payload_json, in_window=True, turn_id=self._turn.id)

    def _decided(self, call: PendingCall, ruling: Ruling, arguments: JsonObject) -> Sequence[NewEvent]:
        decided = self._news.ruled(call, ruling, arguments)
        if self._may_wait(ruling):
            return [decided]
        if not ruling.allowed:
            return [decided, self._over(call, self._denied(ruling))]
        return [decided] if call.kind == "client" else [decided, self._news.started(call)]

    def _offered(self, claim: Claim) -> frozenset[str]:
        if self._thread is not None:
            return self._thread.tools & frozenset(claim.agent.tools) & frozenset(self._bench.tools)
        return frozenset(claim.agent.tools) & frozenset(self._bench.tools) | self._client_tools | self._subagents

    def _may_wait(self, ruling: Ruling) -> bool:
        return self._thread is None and self._pauses.may_wait(ruling)

    def _pause(self, call: PendingCall, ruling: Ruling) -> NewPause | None:
        return None if self._thread is not None else self._pauses.of_ruling(call, ruling)

    def _denied(self, ruling: Ruling) -> ToolOutput:
        if self._thread is not None and self._pauses.may_wait(ruling):
            return ToolOutput("denied", f"denied: {CANNOT_WAIT}", False, 0)
        return _denied(ruling)

    async def _keeps(self, output: ToolOutput) -> bool:
        """Whether there is room for an artifact of a long output; of a short one there is none to ask for."""
        settings = self._bench.settings
        if len(output.text) * MAX_UTF8_BYTES <= settings.inline_bytes:
            return True
        return await self._artifacts.has_room(settings.tool_output_bytes)

    def _told(self, call: PendingCall, output: ToolOutput, ruling: Ruling, *, keeps: bool) -> Sequence[NewEvent]:
        if not ruling.allowed:
            return [self._over(call, self._denied(ruling))]
        if not keeps or len(output.text.encode()) <= self._bench.settings.inline_bytes:
            return [self._news.completed(call, output)]
        artifact_id, created = self._artifacts.of_text("tool_output", f"{call.tool_call_id}.txt", output.text)
        return [created, self._news.completed(call, output, artifact_id)]

    def _over(self, call: PendingCall, output: ToolOutput) -> NewEvent:
        since_ms = self._bench.clock.monotonic_ms() if self._open is None else self._open.since_ms
        return self._news.closed(call, output.status, since_ms, output.text)

    def _answered(self, pause: Pause) -> ToolOutput:
        answer = pause.answer
        text, cut = cut_text("" if answer is None else answer.text, self._bench.settings.inline_bytes)
        waited_ms = epoch_ms(self._bench.clock.now()) - epoch_ms(pause.paused_at)
        return ToolOutput(
            "ok" if answer is not None and answer.error is None else "error", text, cut, max(waited_ms, 0)
        )


def arguments_after(ruling: Ruling, arguments: JsonObject) -> Mapping[str, JsonValue]:
    """The arguments to act with."""
    return arguments if ruling.changed is None else arguments_of(ruling.changed, arguments)


def _refused(why: str) -> ToolOutput:
    return ToolOutput("error", why, False, 0)


def _call_after(ruling: Ruling, call: PendingCall, arguments: JsonObject) -> PendingCall:
    """The call as the app is to carry it out."""
    if ruling.changed is None:
        return call
    input_json = input_of(ruling.changed, arguments)
    return replace(call, input_json=input_json, input_hash=hash_of(input_json))


def _again(payload_json: str, call: PendingCall, approval: Approval) -> str:
    """The step as it is sent again: what it was, what an approver added, and which step was asked about."""
    if approval.context_json is not None:
        payload_json = payloads.with_member(payload_json, payloads.ADDITIONAL_CONTEXT, approval.context_json)
    if approval.origin == "guardian" and call.request_id is not None:
        payload_json = payloads.referring_to(payload_json, call.request_id)
    return payload_json


def _refusal(approval: Approval) -> str:
    return approval.note or ("nobody answered in time" if approval.status == "expired" else "an approver said no")


def _denied(ruling: Ruling) -> ToolOutput:
    return ToolOutput("denied", f"denied: {ruling.reasoning or 'no reason given'}", False, 0)
