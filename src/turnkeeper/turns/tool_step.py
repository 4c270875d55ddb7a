"""One governed tool call (contract 16.3): asked, run, asked again, and only then told to the agent.

Answers for the order and for what is written together: [ask, tool.requested] - Guardian - [answer, tool.decided,
tool.started] - the tool - [ask] - Guardian - [answer, tool.completed]. Must never run what was not allowed, nor
tell the agent an output that was not allowed; where the Guardian changed arguments or output, only what it made of them
is used. A call of a tool the agent does not have, and one whose arguments are no
JSON object, never leaves the agent: it is answered here, without a step and without an event.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson
import structlog

from turnkeeper.acs import Disposition, JsonLimits, JsonRejected, JsonValue, Marks, minify, parse_object
from turnkeeper.errors import TurnkeeperError
from turnkeeper.events import catalogue
from turnkeeper.events.catalogue import ToolDecision, ToolEnd
from turnkeeper.events.envelope import NewEvent
from turnkeeper.sandbox.protocol import ToolRequest, ToolResult
from turnkeeper.turns import payloads
from turnkeeper.turns.applied import arguments_of, output_of
from turnkeeper.turns.box_ports import ToolBox
from turnkeeper.turns.exchange import Party
from turnkeeper.turns.model import Claim, Draft, Fence, Turn
from turnkeeper.turns.rulings import Ruling
from turnkeeper.turns.workbench import Workbench

MAX_ARGUMENT_DEPTH: Final = 32
"""An envelope is itself a few levels deep, and a Guardian takes 64."""
MAX_ARGUMENTS: Final = 1_000
"""Each argument carries provenance of its own, and becomes a source of what the agent says next."""

_EXIT_STATUS: Final[Mapping[str, payloads.ExitStatus]] = {"ok": "success", "error": "failure", "timeout": "timeout"}
_DECISIONS: Final[Mapping[str, ToolDecision]] = {
    "allow": "allow",
    "deny": "deny",
    "modify": "modify",
    "ask": "ask",
    "defer": "defer",
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that was announced and has no `tool.completed` yet."""

    tool_call_id: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class _Output:
    """What a tool gave, cut to what may be told."""

    status: ToolEnd
    text: str
    truncated: bool
    duration_ms: int


class ToolSteps:
    """The tool calls of one turn and the tool box they run in."""

    def __init__(self, bench: Workbench, claim: Claim, turn: Turn, fence: Callable[[], Fence]) -> None:
        self._bench = bench
        self._turn = turn
        self._tools = frozenset(claim.agent.tools) & frozenset(bench.tools)
        self._party = Party(turn.session_id, turn.agent_id)
        self._fence = fence
        self._box: ToolBox | None = None
        self._box_since_ms = 0
        self._open: OpenCall | None = None
        self._released: list[NewEvent] = []

    async def handle(self, request: ToolRequest) -> ToolResult:
        """What the agent gets for a call. Raises `StaleFence`."""
        if request.name not in self._tools:
            return ToolResult(request.call_id, "error", f"unknown tool: {request.name[:100]}")
        try:
            limits = JsonLimits(max_bytes=self._bench.settings.argument_bytes, max_depth=MAX_ARGUMENT_DEPTH)
            arguments = parse_object(request.arguments.encode(), limits)
        except JsonRejected as error:
            return ToolResult(request.call_id, "error", f"the arguments are not a usable JSON object: {error.message}")
        if len(arguments) > MAX_ARGUMENTS:
            return ToolResult(request.call_id, "error", f"a call has at most {MAX_ARGUMENTS} arguments")
        return await self._governed(request, arguments)

    def closing_events(self, status: ToolEnd) -> list[NewEvent]:
        """Closes what is still open, and says which tool boxes are gone. For the terminal transaction."""
        closed = [] if self._open is None else [self._completed(self._open, status, source="platform")]
        self._open = None
        return [*closed, *self._released]

    async def close(self) -> None:
        """Ends the tool box; returns when its processes are gone."""
        if self._box is None:
            return
        box, self._box = self._box, None
        try:
            await box.kill()
        except TurnkeeperError as error:
            _log.error("tool_box_not_gone", turn_id=self._turn.id, sandbox_id=box.sandbox_id, error=str(error))
            return
        lifetime_ms = self._bench.clock.monotonic_ms() - self._box_since_ms
        self._released.append(
            catalogue.sandbox_released(turn_id=self._turn.id, sandbox_id=box.sandbox_id, lifetime_ms=lifetime_ms)
        )

    async def _governed(self, request: ToolRequest, arguments: Mapping[str, JsonValue]) -> ToolResult:
        call = OpenCall(self._bench.ids.new("tcl"), self._bench.clock.monotonic_ms())
        self._open = call

        def write(marks: Marks) -> str:
            return payloads.tool_call_request(marks, request.name, arguments)

        asked = self._draft(payloads.TOOL_CALL_REQUEST, write)
        ruling = await self._bench.governor.ask(
            self._party,
            asked,
            self._fence(),
            events=[self._requested(call, request)],
            events_for=lambda ruling: self._decided(call, ruling, arguments),
        )
        if not ruling.allowed:
            self._open = None
            return ToolResult(request.call_id, "denied", _denied(ruling))
        output = await self._run(request.name, arguments_after(ruling, arguments))
        return await self._returned(request, call, asked.request_id, output)

    async def _returned(self, request: ToolRequest, call: OpenCall, asked_id: str, output: _Output) -> ToolResult:
        def write(marks: Marks) -> str:
            return payloads.tool_call_result(
                marks,
                request.name,
                exit_status=_EXIT_STATUS.get(output.status, "failure"),
                output=output.text,
                request_id_ref=asked_id,
                duration_ms=output.duration_ms,
                by_platform=output.status == "unknown",
            )

        ruling = await self._bench.governor.ask(
            self._party,
            self._draft(payloads.TOOL_CALL_RESULT, write),
            self._fence(),
            events_for=lambda ruling: [self._told(call, self._after(ruling, output), ruling)],
        )
        self._open = None
        if not ruling.allowed:
            return ToolResult(request.call_id, "denied", _denied(ruling))
        told = self._after(ruling, output)
        return ToolResult(request.call_id, told.status, told.text)

    def _after(self, ruling: Ruling, output: _Output) -> _Output:
        """The output as the agent gets it."""
        if ruling.changed is None:
            return output
        text, cut = cut_text(output_of(ruling.changed), self._bench.settings.inline_bytes)
        return replace(output, text=text, truncated=output.truncated or cut)

    async def _run(self, name: str, arguments: Mapping[str, JsonValue]) -> _Output:
        # Counted while it runs: the answer that allowed it has just shown that the fence is current.
        counting = asyncio.ensure_future(self._bench.store.tool_ran(self._fence()))
        try:
            return await self._called(name, arguments)
        finally:
            await counting

    async def _called(self, name: str, arguments: Mapping[str, JsonValue]) -> _Output:
        settings = self._bench.settings
        since_ms = self._bench.clock.monotonic_ms()
        try:
            box = self._box or await self._open_box()
            outcome = await box.call(
                name, arguments, timeout_ms=settings.tool_timeout_ms, max_output_bytes=settings.inline_bytes
            )
        except TurnkeeperError as error:
            # What the tool had done by then nobody knows; the next call gets a box of its own.
            _log.warning("tool_box_lost", turn_id=self._turn.id, tool=name, error=str(error))
            await self.close()
            return _Output("unknown", "the tool's sandbox went away", False, self._since(since_ms))
        text, cut = cut_text(outcome.text, settings.inline_bytes)
        return _Output(outcome.status, text, outcome.truncated or cut, outcome.duration_ms)

    async def _open_box(self) -> ToolBox:
        workspace = self._bench.workspaces / self._turn.session_id
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._box = await self._bench.boxes.tool_box(workspace)
        self._box_since_ms = self._bench.clock.monotonic_ms()
        return self._box

    def _draft(self, method: str, write: Callable[[Marks], str]) -> Draft:
        return Draft(self._bench.ids.uuid(), method, write, in_window=True, turn_id=self._turn.id)

    def _requested(self, call: OpenCall, request: ToolRequest) -> NewEvent:
        input_json = minify(request.arguments)
        shown, truncated = self._inline(input_json)
        return catalogue.tool_requested(
            turn_id=self._turn.id,
            attempt=self._turn.attempt,
            tool_call_id=call.tool_call_id,
            name=request.name,
            input_json=shown,
            input_hash=hashlib.sha256(input_json.encode()).hexdigest(),
            truncated=truncated,
        )

    def _inline(self, input_json: str) -> tuple[str, bool]:
        """An input as an event shows it, and whether it is a text that was cut."""
        text, truncated = cut_text(input_json, self._bench.settings.inline_bytes)
        return (orjson.dumps(text).decode() if truncated else input_json), truncated

    def _decided(self, call: OpenCall, ruling: Ruling, arguments: Mapping[str, JsonValue]) -> Sequence[NewEvent]:
        decided = catalogue.tool_decided(
            turn_id=self._turn.id,
            attempt=self._turn.attempt,
            tool_call_id=call.tool_call_id,
            decision=_decision(ruling),
            decided_by="guardian" if ruling.decision is not None else "agent_policy",
            reasons=ruling.reasons,
            request_id=ruling.request_id,
            modified_input_json=None if ruling.changed is None else self._modified_input(ruling, arguments),
        )
        if not ruling.allowed:
            return [decided, self._completed(call, "denied", source="platform", output=_denied(ruling))]
        started = catalogue.tool_started(
            turn_id=self._turn.id, attempt=self._turn.attempt, tool_call_id=call.tool_call_id
        )
        return [decided, started]

    def _modified_input(self, ruling: Ruling, arguments: Mapping[str, JsonValue]) -> str:
        changed = json.dumps(arguments_after(ruling, arguments), ensure_ascii=False, separators=(",", ":"))
        return self._inline(changed)[0]

    def _told(self, call: OpenCall, output: _Output, ruling: Ruling) -> NewEvent:
        if not ruling.allowed:
            return self._completed(call, "denied", source="platform", output=_denied(ruling))
        return catalogue.tool_completed(
            turn_id=self._turn.id,
            attempt=self._turn.attempt,
            tool_call_id=call.tool_call_id,
            status=output.status,
            output=output.text,
            modified=ruling.changed is not None,
            truncated=output.truncated,
            duration_ms=output.duration_ms,
            source="platform" if output.status == "unknown" else "sandbox",
        )

    def _completed(
        self, call: OpenCall, status: ToolEnd, *, source: catalogue.EventSource, output: str = ""
    ) -> NewEvent:
        return catalogue.tool_completed(
            turn_id=self._turn.id,
            attempt=self._turn.attempt,
            tool_call_id=call.tool_call_id,
            status=status,
            output=output,
            modified=False,
            truncated=False,
            duration_ms=self._since(call.since_ms),
            source=source,
        )

    def _since(self, since_ms: int) -> int:
        return self._bench.clock.monotonic_ms() - since_ms


def arguments_after(ruling: Ruling, arguments: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """The arguments to act with."""
    return arguments if ruling.changed is None else arguments_of(ruling.changed, arguments)


def cut_text(text: str, limit_bytes: int) -> tuple[str, bool]:
    """The text, at most `limit_bytes` long in UTF-8, and whether it was cut; never inside a character."""
    encoded = text.encode()
    if len(encoded) <= limit_bytes:
        return text, False
    return encoded[:limit_bytes].decode(errors="ignore"), True


def _denied(ruling: Ruling) -> str:
    return f"denied: {ruling.reasoning or 'no reason given'}"


def _decision(ruling: Ruling) -> ToolDecision:
    if ruling.decision == Disposition.MODIFY and not ruling.allowed:
        return "deny"
    return _DECISIONS.get(ruling.decision or "", "allow" if ruling.allowed else "deny")
