"""Approvals of a turn's steps (contract 2.5): what a person is asked, the one answer, what a session remembers of it.

Answers for a question that is bound to one input, has an end and is decided once, and for what the API says to a second
answer. Must never let a changed input inherit a yes. Pure.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, TypeAlias

from turnkeeper.errors import TurnkeeperError

ApprovalKind: TypeAlias = Literal["ask", "deferral", "policy"]
ApprovalStatus: TypeAlias = Literal["pending", "approved", "denied", "expired", "canceled"]
ApprovalOrigin: TypeAlias = Literal["guardian", "agent_policy"]
ApprovalWord: TypeAlias = Literal["approve", "deny"]
ToolKind: TypeAlias = Literal["builtin", "client", "mcp", "subagent"]
Remember: TypeAlias = Literal["once", "session"]
DeciderType: TypeAlias = Literal["api_key", "user", "guardian", "system"]
TimeoutDecision: TypeAlias = Literal["deny", "ask"]

APPROVAL_STATUSES: Final = ("pending", "approved", "denied", "expired", "canceled")
MAX_NOTE_CHARACTERS: Final = 1_000
MAX_CONTEXT_BYTES: Final = 16_384
MAX_DEFERRALS: Final = 8
"""Deferrals that a session may have, whatever its Guardian allows (contract 16.3)."""


class ApprovalDecided(TurnkeeperError):
    """The question has another answer, or its time is over."""

    code = "approval_already_decided"


class ApprovalInputChanged(TurnkeeperError):
    """The answer is about another input than the question."""

    code = "approval_input_changed"


class ToolResultConflict(TurnkeeperError):
    """The call waits for no result, or has another one."""

    code = "tool_result_conflict"


@dataclass(frozen=True, slots=True)
class DecidedBy:
    """Who answered."""

    type: DeciderType
    id: str | None = None


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A tool call that waits, with everything needed to run it later exactly as it was asked.

    `input_json` is the whole text of the arguments, `input_hash` its SHA-256. `request_id` is the latest ACS step that
    asked about it, null where none did.
    """

    tool_call_id: str
    name: str
    kind: ToolKind
    input_json: str
    input_hash: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """A question and what became of it. A deferral waits for an answer too.

    `request_id` is the ACS step that raised it, null where the agent's own permissions ask.
    """

    id: str
    kind: ApprovalKind
    origin: ApprovalOrigin
    session_id: str
    turn_id: str
    call: PendingCall
    question: str
    reasons: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    timeout_decision: TimeoutDecision = "deny"
    status: ApprovalStatus = "pending"
    decided_at: datetime | None = None
    decided_by: DecidedBy | None = None
    note: str | None = None
    remember: Remember | None = None
    modified_input_json: str | None = None
    context_json: str | None = None

    def status_at(self, now: datetime) -> ApprovalStatus:
        """The status at a time: a question that is over is expired before anybody has written it down."""
        return "expired" if self.status == "pending" and now >= self.expires_at else self.status


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """What somebody says to a question. `input_hash`, where given, is of the input that was seen."""

    word: ApprovalWord
    by: DecidedBy
    input_hash: str | None = None
    modified_input_json: str | None = None
    context_json: str | None = None
    remember: Remember = "once"
    note: str | None = None


@dataclass(frozen=True, slots=True)
class AskedStep:
    """The step that raised a question with the Guardian."""

    session_id: str
    request_id: str


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """A yes that holds for the same input of the same tool until the session ends. Named by its approval."""

    approval_id: str
    session_id: str
    tool: str
    input_hash: str
    origin: ApprovalOrigin
    request_id: str | None
    created_at: datetime
    decided_by: DecidedBy


def decide(approval: Approval, answer: ApprovalAnswer, now: datetime) -> Approval:
    """The question with its answer; unchanged where it has the same one already.

    Raises `ApprovalInputChanged`, and `ApprovalDecided` for another answer, an expired or a canceled question.
    """
    if answer.input_hash is not None and answer.input_hash != approval.call.input_hash:
        raise ApprovalInputChanged(
            "the question is about another input",
            detail={"input_hash": approval.call.input_hash},
            hint="Read the approval again and decide about what it shows.",
        )
    status = approval.status_at(now)
    if status == "pending":
        return _answered(approval, answer, now)
    if not _is_same(approval, answer):
        raise ApprovalDecided(f"{approval.id} is {status}", detail={"status": status})
    return approval


def close(approval: Approval, status: Literal["expired", "canceled"], now: datetime) -> Approval:
    """The question once nobody can answer it any more."""
    return replace(approval, status=status, decided_at=now, decided_by=DecidedBy("system"))


def rule_of(approval: Approval) -> ApprovalRule | None:
    """What the session remembers of an answer, if it was told to."""
    by, at = approval.decided_by, approval.decided_at
    if approval.status != "approved" or approval.remember != "session" or by is None or at is None:
        return None
    return ApprovalRule(
        approval_id=approval.id,
        session_id=approval.session_id,
        tool=approval.call.name,
        input_hash=approval.call.input_hash,
        origin=approval.origin,
        request_id=approval.call.request_id,
        created_at=at,
        decided_by=by,
    )


def _answered(approval: Approval, answer: ApprovalAnswer, now: datetime) -> Approval:
    approves = answer.word == "approve"
    return replace(
        approval,
        status="approved" if approves else "denied",
        decided_at=now,
        decided_by=answer.by,
        note=answer.note,
        remember=answer.remember if approves else None,
        modified_input_json=answer.modified_input_json,
        context_json=answer.context_json,
    )


def _is_same(approval: Approval, answer: ApprovalAnswer) -> bool:
    if approval.status != ("approved" if answer.word == "approve" else "denied"):
        return False
    if answer.word == "deny":
        return True
    known = (approval.remember, approval.modified_input_json, approval.context_json)
    return known == (answer.remember, answer.modified_input_json, answer.context_json)
