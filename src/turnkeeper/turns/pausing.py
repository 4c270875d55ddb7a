"""How a turn comes to wait, and for what (contract 6, rows 15, 16 and 23 to 27).

Pure. A pause holds one tool call with everything needed to go on days later in another process: nothing of a turn that
waits is in memory.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias, cast

import orjson

from turnkeeper.events import pauses as events
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns.approvals import (
    Approval,
    DecidedBy,
    PendingCall,
    TimeoutDecision,
)

PauseReason: TypeAlias = Literal["approval", "deferral", "client_tool"]
QuestionReason: TypeAlias = Literal["approval", "deferral"]
PauseState: TypeAlias = Literal["waiting", "resolved", "over"]
PauseOutcome: TypeAlias = Literal["approved", "denied", "expired", "answered", "canceled"]

DEFAULT_PAUSE_EXPIRY_MS: Final = 3_600_000
MAX_PAUSE_EXPIRY_MS: Final = 7 * 24 * 3_600_000
MAX_QUESTION_CHARACTERS: Final = 2_000

_DEFER_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "reason": ("pending_dependency", "insufficient_context", "conflicting_policies", "low_confidence"),
    "resolution_method": ("human_approval", "additional_context", "timeout"),
    "timeout_decision": ("deny", "ask"),
}
"""The words the standard has for each; the first one stands in where a Guardian's own are not at hand."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What an app says to a client-side tool's call: its output, or why there is none."""

    output: str | None
    error: str | None

    @property
    def text(self) -> str:
        """What the agent is told."""
        return self.output or "" if self.error is None else self.error


@dataclass(frozen=True, slots=True)
class NewPause:
    """A turn that is about to wait. `active_ms` is how long it has run, `events` say that it waits."""

    reason: PauseReason
    call: PendingCall
    expires_at: datetime
    active_ms: int
    approval: Approval | None
    events: tuple[NewEvent, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """A turn's pause as its row says. `window_closed`: a turnEnd `deferred` went out, so a turnStart is owed.

    `deferrals` are those of the turn so far.
    """

    turn_id: str
    number: int
    reason: PauseReason
    state: PauseState
    window_closed: bool
    call: PendingCall
    approval: Approval | None
    paused_at: datetime
    expires_at: datetime
    outcome: PauseOutcome | None
    answer: ToolAnswer | None
    deferrals: int = 0

    @property
    def waits_for(self) -> str:
        """The id of what is waited for: an approval, or the tool call itself."""
        return self.call.tool_call_id if self.approval is None else self.approval.id


def hash_of(input_json: str) -> str:
    """What an approval is bound to: the SHA-256 of the arguments' text."""
    return hashlib.sha256(input_json.encode()).hexdigest()


def wait_of_ask(details: Mapping[str, object] | None, longest_ms: int) -> int:
    """How long an ASK is waited for: as long as the Guardian says, within the agent's limit."""
    seconds = _number((details or {}).get("timeout_seconds"))
    return longest_ms if seconds is None else _within(seconds * 1_000, longest_ms)


def deferral_of(details: Mapping[str, object] | None, longest_ms: int) -> events.Deferral:
    """A Guardian's defer_details, every word of them one that the standard has."""
    said = details or {}
    wait_ms = _number(said.get("resolution_timeout_ms"))
    chosen = {
        name: next((word for word in words if word == said.get(name)), words[0]) for name, words in _DEFER_WORDS.items()
    }
    return events.Deferral(
        reason=chosen["reason"],
        resolution_method=chosen["resolution_method"],
        resolution_timeout_ms=longest_ms if wait_ms is None else _within(wait_ms, longest_ms),
        timeout_decision=chosen["timeout_decision"],
    )


def question_of(details: Mapping[str, object] | None, otherwise: str) -> str:
    """What a person is asked."""
    question = (details or {}).get("question")
    said = question if isinstance(question, str) and question.strip() else otherwise
    return said[:MAX_QUESTION_CHARACTERS]


def after(now: datetime, wait_ms: int) -> datetime:
    """The end of a wait."""
    return now + timedelta(milliseconds=wait_ms)


def timeout_decision(deferral: events.Deferral) -> TimeoutDecision:
    """What happens at the end of a deferral nobody answered."""
    return cast("TimeoutDecision", deferral.timeout_decision)


def tool_view(call: PendingCall, inline_bytes: int) -> dict[str, object]:
    """The tool of an approval as events and the API show it; a long input is the beginning of its text."""
    whole = len(call.input_json.encode()) <= inline_bytes
    preview: object = (
        orjson.Fragment(call.input_json) if whole else call.input_json.encode()[:inline_bytes].decode(errors="ignore")
    )
    return {
        "name": call.name,
        "kind": call.kind,
        "server": None,
        "input_preview": preview,
        "input_hash": call.input_hash,
    }


def requested(approval: Approval, *, attempt: int, inline_bytes: int) -> NewEvent:
    """`approval.requested` for a question."""
    return events.approval_requested(
        turn_id=approval.turn_id,
        attempt=attempt,
        approval_id=approval.id,
        tool_call_id=approval.call.tool_call_id,
        kind=approval.kind,
        origin=approval.origin,
        question=approval.question,
        tool=tool_view(approval.call, inline_bytes),
        expires_at=approval.expires_at,
    )


def resolved(approval: Approval, *, attempt: int) -> NewEvent:
    """`approval.resolved` for a question that has its end."""
    by = approval.decided_by or DecidedBy("system")
    return events.approval_resolved(
        turn_id=approval.turn_id,
        attempt=attempt,
        approval_id=approval.id,
        outcome=approval.status,
        decided_by=(by.type, by.id),
        note=approval.note,
        modified=approval.modified_input_json is not None,
    )


def cause_of(pause: Pause) -> events.ResumeCause:
    """Why a turn goes on."""
    if pause.outcome == "answered":
        return "tool_result"
    if pause.outcome == "expired":
        return "expiry"
    by = None if pause.approval is None else pause.approval.decided_by
    return "guardian" if by is not None and by.type == "guardian" else "approval"


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _within(wait_ms: float, longest_ms: int) -> int:
    return max(int(min(wait_ms, longest_ms)), 0)
