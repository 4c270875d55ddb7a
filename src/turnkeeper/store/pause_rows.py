"""Rows of pauses, approvals and remembered answers, and the values they stand for."""

from dataclasses import asdict
from typing import cast

import orjson
from sqlalchemy import RowMapping

from turnkeeper.store.rows import to_json
from turnkeeper.turns.approvals import Approval, ApprovalRule, DecidedBy, PendingCall
from turnkeeper.turns.pausing import NewPause, Pause, ToolAnswer


def to_call(row: RowMapping) -> PendingCall:
    """The tool call in a row of `approvals` or `pauses`."""
    return PendingCall(
        tool_call_id=row["tool_call_id"],
        name=row["tool_name"],
        kind=row["tool_kind"],
        input_json=row["input_json"],
        input_hash=row["input_hash"],
        request_id=row["request_id"],
    )


def from_call(call: PendingCall) -> dict[str, object]:
    """The columns of a tool call."""
    return {
        "tool_call_id": call.tool_call_id,
        "tool_name": call.name,
        "tool_kind": call.kind,
        "input_json": call.input_json,
        "input_hash": call.input_hash,
        "request_id": call.request_id,
    }


def to_approval(row: RowMapping) -> Approval:
    """A row of `approvals`."""
    return Approval(
        id=row["id"],
        kind=row["kind"],
        origin=row["origin"],
        session_id=row["session_id"],
        turn_id=row["turn_id"],
        call=to_call(row),
        question=row["question"],
        reasons=tuple(cast("list[str]", orjson.loads(row["reasons_json"]))),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        timeout_decision=row["timeout_decision"],
        status=row["status"],
        decided_at=row["decided_at"],
        decided_by=_decided_by(row["decided_by_json"]),
        note=row["note"],
        remember=row["remember"],
        modified_input_json=row["modified_input_json"],
        context_json=row["context_json"],
    )


def from_approval(approval: Approval) -> dict[str, object]:
    """The columns of an approval."""
    return {
        "id": approval.id,
        "kind": approval.kind,
        "origin": approval.origin,
        "session_id": approval.session_id,
        "turn_id": approval.turn_id,
        **from_call(approval.call),
        "question": approval.question,
        "reasons_json": to_json(approval.reasons),
        "timeout_decision": approval.timeout_decision,
        "created_at": approval.created_at,
        "expires_at": approval.expires_at,
        **answer_of(approval),
    }


def answer_of(approval: Approval) -> dict[str, object]:
    """The columns that an answer changes."""
    return {
        "status": approval.status,
        "decided_at": approval.decided_at,
        "decided_by_json": None if approval.decided_by is None else to_json(asdict(approval.decided_by)),
        "note": approval.note,
        "remember": approval.remember,
        "modified_input_json": approval.modified_input_json,
        "context_json": approval.context_json,
    }


def to_pause(row: RowMapping, approval: Approval | None) -> Pause:
    """A row of `pauses` with the question it is about."""
    return Pause(
        turn_id=row["turn_id"],
        number=row["number"],
        reason=row["reason"],
        state=row["state"],
        window_closed=row["window_closed"],
        call=to_call(row),
        approval=approval,
        paused_at=row["paused_at"],
        expires_at=row["expires_at"],
        outcome=row["outcome"],
        answer=_answer(row),
    )


def from_pause(pause: NewPause) -> dict[str, object]:
    """The columns of a pause that begins, without its number and time."""
    return {
        "reason": pause.reason,
        "state": "waiting",
        "window_closed": pause.reason == "deferral",
        "approval_id": None if pause.approval is None else pause.approval.id,
        **from_call(pause.call),
        "expires_at": pause.expires_at,
    }


def to_rule(row: RowMapping) -> ApprovalRule:
    """A row of `approval_rules`."""
    return ApprovalRule(
        approval_id=row["approval_id"],
        session_id=row["session_id"],
        tool=row["tool_name"],
        input_hash=row["input_hash"],
        origin=row["origin"],
        request_id=row["request_id"],
        created_at=row["created_at"],
        decided_by=DecidedBy(**orjson.loads(row["decided_by_json"])),
    )


def from_rule(rule: ApprovalRule) -> dict[str, object]:
    """The columns of a remembered answer."""
    return {
        "approval_id": rule.approval_id,
        "session_id": rule.session_id,
        "tool_name": rule.tool,
        "input_hash": rule.input_hash,
        "origin": rule.origin,
        "request_id": rule.request_id,
        "created_at": rule.created_at,
        "decided_by_json": to_json(asdict(rule.decided_by)),
    }


def _decided_by(text: str | None) -> DecidedBy | None:
    return None if text is None else DecidedBy(**orjson.loads(text))


def _answer(row: RowMapping) -> ToolAnswer | None:
    return ToolAnswer(row["output"], row["error"]) if row["outcome"] == "answered" else None
