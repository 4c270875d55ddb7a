"""Approvals (ACS 9, CORE-ASK-02 and 03, CORE-EXT-01): what an approver is asked, and what may be answered.

Answers for a question that is bound to one input of one step in one session, that has an end, and that one approver,
authenticated, answers once. Must never take a question for an answer (single hop), nor a grant that is wider than what
was asked. Pure.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID, uuid5

from turnkeeper.acs import canonicalize
from turnkeeper.errors import TurnkeeperError

REFERENCE: Final = "request_id_ref"
MAX_APPROVAL_MS: Final = 7 * 24 * 3_600_000
"""The longest that a question stays open, whatever a policy says."""
MAX_NOTE_CHARACTERS: Final = 1_000
ANY_APPROVER: Final = "*"
NO_APPROVER: Final = ""
WITHDRAW: Final = "withdraw"
"""What is said to a question, beside an answer, where nobody waits for one any more."""
HUMAN: Final = "human"
AGENT: Final = "agent"


class ApprovalKind(StrEnum):
    """Whether the agent was told to wait for an approver (ASK) or for a later answer (DEFER)."""

    ASK = "ask"
    DEFER = "defer"


class ApprovalStatus(StrEnum):
    """Where a question stands. `expired` is never stored: time alone makes it, and a withdrawal ends the time."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"


class ApprovalScope(StrEnum):
    """How far a grant reaches: the one step, or the same step for the rest of the session."""

    THIS_REQUEST = "this_request"
    SESSION = "session"


class ApprovalRefused(TurnkeeperError):
    """An answer that this approver cannot give to this question."""

    code = "approval_refused"


@dataclass(frozen=True, slots=True)
class Approval:
    """A question to an approver, and what became of it.

    `approver_id` is empty where the policy names nobody. `extension` is the `intent_extension` that is offered.
    """

    approval_id: str
    session_id: str
    request_id: str
    turn_id: str | None
    agent_id: str
    key_id: str
    kind: ApprovalKind
    method: str
    tool: str
    input_hash: str
    question: str
    approver_type: str
    approver_id: str
    created_at_ms: int
    expires_at_ms: int
    extension: Mapping[str, object] | None = None
    status: ApprovalStatus = ApprovalStatus.PENDING
    decided_by: str | None = None
    decided_by_key: str | None = None
    decided_at_ms: int | None = None
    scope: ApprovalScope | None = None
    note: str | None = None
    used_at_ms: int | None = None

    def status_at(self, now_ms: int) -> ApprovalStatus:
        """The status at a time."""
        open_still = self.status is not ApprovalStatus.PENDING or now_ms < self.expires_at_ms
        return self.status if open_still else ApprovalStatus.EXPIRED


@dataclass(frozen=True, slots=True)
class Approver:
    """Whoever has shown an API key that may decide. `ids` are the approvers it may answer as."""

    key_id: str
    name: str
    type: str
    ids: frozenset[str]

    def is_asked_by(self, approval: Approval) -> bool:
        """Whether the question goes to this approver."""
        if approval.approver_type != self.type:
            return False
        return approval.approver_id == NO_APPROVER or ANY_APPROVER in self.ids or approval.approver_id in self.ids


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """What an approver says. `input_hash`, where given, is of the input that the approver has seen."""

    decision: str
    scope: str = ApprovalScope.THIS_REQUEST.value
    note: str | None = None
    input_hash: str | None = None


def input_hash(payload: Mapping[str, object]) -> str:
    """What a grant is bound to: SHA-256 of the canonical payload, without its reference to an earlier step."""
    bare = {name: value for name, value in payload.items() if name != REFERENCE}
    return hashlib.sha256(canonicalize(bare)).hexdigest()


def approval_id_of(session_id: str, request_id: str) -> str:
    """The name of the one question that a step can raise."""
    return str(uuid5(UUID(session_id), request_id))


def decided(approval: Approval, answer: ApprovalAnswer, approver: Approver, now_ms: int) -> Approval:
    """The question with its answer. Raises `ApprovalRefused`; its `error_code` says why."""
    if answer.decision not in ("approve", "deny"):
        raise ApprovalRefused(
            "an approver says approve or deny; there is nobody to ask further", code="approver_decision_invalid"
        )
    if answer.scope not in tuple(ApprovalScope):
        raise ApprovalRefused("the scope is neither this_request nor session", code="approval_scope_invalid")
    _check_approver(approval, approver)
    _check_pending(approval, now_ms)
    if answer.input_hash is not None and answer.input_hash != approval.input_hash:
        raise ApprovalRefused("the question is about another input", code="approval_input_differs")
    approves = answer.decision == "approve"
    scope = ApprovalScope(answer.scope)
    if approves:
        _check_scope(approval, scope)
    return replace(
        approval,
        status=ApprovalStatus.APPROVED if approves else ApprovalStatus.DENIED,
        decided_by=approver.name if approval.approver_id == NO_APPROVER else approval.approver_id,
        decided_by_key=approver.key_id,
        decided_at_ms=now_ms,
        scope=scope if approves else None,
        note=answer.note,
    )


def withdrawn(approval: Approval, approver: Approver, note: str | None, now_ms: int) -> Approval:
    """The question once nobody waits for its answer: its time is over now. Raises `ApprovalRefused`.

    That is no answer, so nobody is named as having given one.
    """
    _check_asked(approval, approver)
    _check_pending(approval, now_ms)
    return replace(approval, expires_at_ms=now_ms, note=note)


def _check_pending(approval: Approval, now_ms: int) -> None:
    status = approval.status_at(now_ms)
    if status is not ApprovalStatus.PENDING:
        raise ApprovalRefused(f"the question is {status} already", code="approval_not_pending")


def _check_asked(approval: Approval, approver: Approver) -> None:
    if not approver.is_asked_by(approval):
        raise ApprovalRefused("the question goes to another approver", code="approver_not_asked")


def _check_approver(approval: Approval, approver: Approver) -> None:
    _check_asked(approval, approver)
    if approver.type == AGENT and approval.agent_id in {approver.name, approval.approver_id}:
        raise ApprovalRefused("an agent does not approve what it asks for itself", code="approver_is_the_agent")


def _check_scope(approval: Approval, scope: ApprovalScope) -> None:
    offered = None if approval.extension is None else approval.extension.get("scope")
    if offered == ApprovalScope.THIS_REQUEST and scope is ApprovalScope.SESSION:
        raise ApprovalRefused("the question offers this request alone", code="approval_scope_exceeded")


class ApprovalStore(Protocol):
    """Where approvals are read and decided. Every call blocks."""

    def approvals(
        self, *, status: ApprovalStatus | None, after: int, limit: int, now_ms: int
    ) -> list[tuple[int, Approval]]:
        """Approvals in the order they were made, each with its place; `after` is the last place seen."""
        ...

    def approval(self, approval_id: str) -> Approval | None:
        """One approval."""
        ...

    def decide(self, approval_id: str, answer: ApprovalAnswer, approver: Approver, now_ms: int) -> Approval | None:
        """The approval once it is decided, durably; None where there is none. Raises `ApprovalRefused`."""
        ...

    def withdraw(self, approval_id: str, approver: Approver, note: str | None, now_ms: int) -> Approval | None:
        """The approval once nobody can answer it any more; None where there is none. Raises `ApprovalRefused`."""
        ...
