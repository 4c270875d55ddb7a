"""What is written about one tool call: asked for, decided, begun, over (contract 10.3).

Pure, but for the two clocks that say how long it took.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson

from turnkeeper.acs import Disposition, JsonObject
from turnkeeper.clock import Clock
from turnkeeper.events import catalogue
from turnkeeper.events.catalogue import DecidedBy, ToolDecision, ToolEnd
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns.applied import input_of
from turnkeeper.turns.approvals import PendingCall
from turnkeeper.turns.mcp_server import server_of
from turnkeeper.turns.model import Turn
from turnkeeper.turns.rulings import Ruling
from turnkeeper.turns.tool_runs import ToolOutput, cut_text

_DECISIONS: Final[Mapping[str, ToolDecision]] = {
    "allow": "allow",
    "deny": "deny",
    "modify": "modify",
    "ask": "ask",
    "defer": "defer",
}


@dataclass(frozen=True, slots=True)
class ToolNews:
    """The events of one turn's tool calls, or of those of one of its subagents."""

    turn: Turn
    clock: Clock
    inline_bytes: int
    thread_id: str | None = None

    def requested(self, call: PendingCall) -> NewEvent:
        """The agent wants it."""
        input_json, truncated = self._inline(call.input_json)
        event = catalogue.tool_requested(
            turn_id=self.turn.id,
            attempt=self.turn.attempt,
            tool_call_id=call.tool_call_id,
            name=call.name,
            input_json=input_json,
            input_hash=call.input_hash,
            truncated=truncated,
            kind=call.kind,
            server=server_of(call.name) if call.kind == "mcp" else None,
        )
        return self._own(event)

    def ruled(self, call: PendingCall, ruling: Ruling, arguments: JsonObject) -> NewEvent:
        """What the Guardian says; where it changed the arguments, with what they are now."""
        modified_json = None
        if ruling.changed is not None:
            modified_json = self._inline(input_of(ruling.changed, arguments))[0]
        event = catalogue.tool_decided(
            turn_id=self.turn.id,
            attempt=self.turn.attempt,
            tool_call_id=call.tool_call_id,
            decision=_decision(ruling),
            decided_by="guardian" if ruling.decision is not None else "agent_policy",
            reasons=ruling.reasons,
            request_id=ruling.request_id,
            modified_input_json=modified_json,
        )
        return self._own(event)

    def decided(
        self,
        call: PendingCall,
        decision: ToolDecision,
        by: DecidedBy,
        reasons: Sequence[str] = (),
        *,
        modified_input_json: str | None = None,
    ) -> NewEvent:
        """What somebody else says: the agent's permissions, an approver, a remembered answer."""
        event = catalogue.tool_decided(
            turn_id=self.turn.id,
            attempt=self.turn.attempt,
            tool_call_id=call.tool_call_id,
            decision=decision,
            decided_by=by,
            reasons=reasons,
            request_id=None,
            modified_input_json=modified_input_json,
        )
        return self._own(event)

    def started(self, call: PendingCall) -> NewEvent:
        """It runs."""
        event = catalogue.tool_started(turn_id=self.turn.id, attempt=self.turn.attempt, tool_call_id=call.tool_call_id)
        return self._own(event)

    def completed(self, call: PendingCall, output: ToolOutput, artifact_id: str | None = None) -> NewEvent:
        """What the agent gets; what a client-side tool gave, and what no tool said, is the platform's word.

        Of a long text it has the beginning; the artifact has all of it.
        """
        ours = call.kind == "client" or output.is_ours
        text, cut = cut_text(output.text, self.inline_bytes)
        event = catalogue.tool_completed(
            turn_id=self.turn.id,
            attempt=self.turn.attempt,
            tool_call_id=call.tool_call_id,
            status=output.status,
            output=text,
            modified=output.modified,
            truncated=output.truncated or cut,
            duration_ms=output.duration_ms,
            artifact_id=artifact_id,
            source="platform" if ours else "sandbox",
        )
        return self._own(event)

    def closed(self, call: PendingCall, status: ToolEnd, since_ms: int, output: str = "") -> NewEvent:
        """It is over without a result."""
        event = catalogue.tool_completed(
            turn_id=self.turn.id,
            attempt=self.turn.attempt,
            tool_call_id=call.tool_call_id,
            status=status,
            output=output,
            modified=False,
            truncated=False,
            duration_ms=self.clock.monotonic_ms() - since_ms,
            source="platform",
        )
        return self._own(event)

    def _own(self, event: NewEvent) -> NewEvent:
        return replace(event, thread_id=self.thread_id)

    def _inline(self, input_json: str) -> tuple[str, bool]:
        """An input as an event shows it, and whether it is a text that was cut."""
        text, truncated = cut_text(input_json, self.inline_bytes)
        return (orjson.dumps(text).decode() if truncated else input_json), truncated


def _decision(ruling: Ruling) -> ToolDecision:
    if ruling.decision == Disposition.MODIFY and not ruling.allowed:
        return "deny"
    return _DECISIONS.get(ruling.decision or "", "allow" if ruling.allowed else "deny")
