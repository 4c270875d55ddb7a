"""The events of a turn that waits (contract 10.2 and 10.3): paused, deferred, resumed; asked, answered.

Pure, and a part of the catalogue: who may say each of them is fixed here too, and it is always the platform.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

import orjson

from turnkeeper.clock import render_time
from turnkeeper.events.envelope import NewEvent

PAUSE_TYPES: Final = ("turn.paused", "turn.deferred", "turn.resumed", "approval.requested", "approval.resolved")

PausedReason: TypeAlias = Literal["approval", "client_tool"]
ResumeCause: TypeAlias = Literal["approval", "tool_result", "guardian", "expiry"]


@dataclass(frozen=True, slots=True)
class Deferral:
    """What a Guardian said when it deferred a step (ACS 6.3)."""

    reason: str
    resolution_method: str
    resolution_timeout_ms: int
    timeout_decision: str


def turn_paused(
    *, turn_id: str, attempt: int, reason: PausedReason, waits_for: Sequence[str], expires_at: datetime
) -> NewEvent:
    """A turn waits for somebody outside; `waits_for` are approvals or tool calls."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "status": "paused",
        "reason": reason,
        "waits_for": list(waits_for),
        "expires_at": render_time(expires_at),
    }
    return _event("turn.paused", turn_id, attempt, data)


def turn_deferred(
    *, turn_id: str, attempt: int, tool_call_id: str, deferral: Deferral, approval_id: str, deferrals: int
) -> NewEvent:
    """The Guardian deferred a step; `deferrals` counts those of the turn, this one included."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "status": "paused",
        "hook": "toolCallRequest",
        "tool_call_id": tool_call_id,
        "reason": deferral.reason,
        "resolution_method": deferral.resolution_method,
        "resolution_timeout_ms": deferral.resolution_timeout_ms,
        "timeout_decision": deferral.timeout_decision,
        "approval_id": approval_id,
        "deferrals": deferrals,
    }
    return _event("turn.deferred", turn_id, attempt, data)


def turn_resumed(
    *,
    turn_id: str,
    attempt: int,
    status: Literal["running", "starting"],
    resolved: tuple[str, str],
    cause: ResumeCause,
    paused_ms: int,
) -> NewEvent:
    """What a turn waited for is there; `resolved` is its id and what became of it."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "status": status,
        "resolved": [{"id": resolved[0], "outcome": resolved[1]}],
        "cause": cause,
        "paused_ms": paused_ms,
    }
    return _event("turn.resumed", turn_id, attempt, data)


def approval_requested(
    *,
    turn_id: str,
    attempt: int,
    approval_id: str,
    tool_call_id: str,
    kind: str,
    origin: str,
    question: str,
    tool: Mapping[str, object],
    expires_at: datetime,
) -> NewEvent:
    """Somebody is asked about a tool call."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "approval_id": approval_id,
        "tool_call_id": tool_call_id,
        "kind": kind,
        "origin": origin,
        "question": question,
        "tool": dict(tool),
        "expires_at": render_time(expires_at),
    }
    return _event("approval.requested", turn_id, attempt, data)


def approval_resolved(
    *,
    turn_id: str,
    attempt: int,
    approval_id: str,
    outcome: str,
    decided_by: tuple[str, str | None],
    note: str | None,
    modified: bool,
) -> NewEvent:
    """A question is answered, over or withdrawn; `decided_by` is the kind and id of whoever did it."""
    data: dict[str, object] = {
        "turn_id": turn_id,
        "approval_id": approval_id,
        "outcome": outcome,
        "decided_by": {"type": decided_by[0], "id": decided_by[1]},
        "note": note,
        "modified": modified,
    }
    return _event("approval.resolved", turn_id, attempt, data)


def _event(event_type: str, turn_id: str, attempt: int, data: Mapping[str, object]) -> NewEvent:
    return NewEvent(event_type, "platform", orjson.dumps(data).decode(), turn_id, attempt)
