"""How approvals, remembered answers and pauses look from outside (contract 2.5 and 3)."""

from dataclasses import asdict
from datetime import datetime

import orjson

from turnkeeper.clock import render_time
from turnkeeper.turns.approvals import Approval, ApprovalRule
from turnkeeper.turns.model import ClientTool
from turnkeeper.turns.pausing import Pause, tool_view


def render_approval(approval: Approval, now: datetime, *, inline_bytes: int) -> bytes:
    """The approval object; a question whose time is over is `expired` at once."""
    return orjson.dumps(
        {
            "id": approval.id,
            "object": "approval",
            "kind": approval.kind,
            "session_id": approval.session_id,
            "turn_id": approval.turn_id,
            "tool_call_id": approval.call.tool_call_id,
            "status": approval.status_at(now),
            "origin": approval.origin,
            "tool": tool_view(approval.call, inline_bytes),
            "question": approval.question,
            "reasons": list(approval.reasons),
            "created_at": render_time(approval.created_at),
            "expires_at": render_time(approval.expires_at),
            "on_expiry": "deny",
            "decided_at": None if approval.decided_at is None else render_time(approval.decided_at),
            "decided_by": None if approval.decided_by is None else asdict(approval.decided_by),
            "note": approval.note,
            "remember": approval.remember,
            "modified_input": _raw(approval.modified_input_json),
            "context": _raw(approval.context_json),
        }
    )


def render_rule(rule: ApprovalRule) -> bytes:
    """A remembered answer; it is named by the approval that it came with."""
    return orjson.dumps(
        {
            "id": rule.approval_id,
            "object": "approval_rule",
            "session_id": rule.session_id,
            "tool": rule.tool,
            "input_hash": rule.input_hash,
            "origin": rule.origin,
            "created_at": render_time(rule.created_at),
            "decided_by": asdict(rule.decided_by),
        }
    )


def pause_document(pause: Pause | None) -> dict[str, object] | None:
    """The `pause` of a turn object; None for a turn that waits for nobody."""
    if pause is None or pause.state != "waiting":
        return None
    return {
        "reason": pause.reason,
        "waits_for": [pause.waits_for],
        "expires_at": render_time(pause.expires_at),
        "deferrals": pause.deferrals,
    }


def client_tool_document(tool: ClientTool) -> dict[str, object]:
    """A tool that the app runs, as an agent shows it."""
    return {
        "kind": "client",
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.parameters),
    }


def _raw(text: str | None) -> orjson.Fragment | None:
    return None if text is None else orjson.Fragment(text)
