"""What the Guardian keeps, as documents for people and programs: the HTTP API and the commands show the same.

Answers for names, for times in RFC 3339, and for leaving nothing out. Pure.
"""

from collections.abc import Mapping
from typing import cast

import orjson

from turnkeeper.acs import JsonRejected, parse_object
from turnkeeper.clock import from_epoch_ms, render_time
from turnkeeper.guardian.apikeys import GuardianKey
from turnkeeper.guardian.approvals import Approval
from turnkeeper.guardian.ports import SessionSummary, StoredEntry, StoredFinding, TurnSummary


def session_view(session: SessionSummary) -> dict[str, object]:
    """A session with the Guardian's own counts."""
    progress, memory = session.progress, session.progress.memory
    return {
        "object": "guardian.session",
        "session_id": session.session_id,
        "agent_id": session.agent_id,
        "key_id": session.key_id,
        "created_at": render_ms(session.created_at_ms),
        "closed": progress.closed,
        "chain_hash": progress.head,
        "entries": progress.entries,
        "tool_calls": progress.tool_calls,
        "turns": progress.turns,
        "open_turn_id": None if progress.window is None else progress.window.turn_id,
        "denials": memory.denials,
        "deferrals": memory.deferrals,
        "tainted": memory.taint_step != "",
        "taint_step": memory.taint_step or None,
        "provenance_summary": memory.provenance.to_document(),
    }


def turn_view(turn: TurnSummary) -> dict[str, object]:
    """A turn's window. The counts of an open one stand with its session."""
    return {
        "object": "guardian.turn",
        "turn_id": turn.turn_id,
        "ordinal": turn.ordinal,
        "parent_turn_id": turn.parent_turn_id or None,
        "triggered_by": turn.triggered_by or None,
        "start_denied": turn.denied,
        "outcome": turn.outcome,
        "step_count": turn.steps,
        "tool_call_count": turn.tool_calls,
        "taint_step": turn.taint_step or None,
        "denials": turn.denials,
        "deferrals": turn.deferrals,
        "summary": turn.summary,
    }


def entry_view(entry: StoredEntry) -> dict[str, object]:
    """An entry of the chain as it was hashed, and what was answered."""
    return {
        "object": "guardian.entry",
        "recorded": entry.recorded,
        "received_at": render_ms(entry.received_at_ms),
        "decision": entry.decision,
        "entry": cast("dict[str, object]", orjson.loads(entry.entry)),
    }


def finding_view(found: StoredFinding) -> dict[str, object]:
    """What an auditor should see."""
    return {
        "object": "guardian.finding",
        "id": found.id,
        "session_id": found.session_id,
        "recorded": found.recorded,
        "at": render_ms(found.at_ms),
        "code": found.finding.code,
        "message": found.finding.message,
        "turn_id": found.finding.turn_id,
    }


def approval_view(approval: Approval, now_ms: int) -> dict[str, object]:
    """A question to an approver."""
    return {
        "object": "approval",
        "approval_id": approval.approval_id,
        "status": approval.status_at(now_ms).value,
        "kind": approval.kind.value,
        "question": approval.question,
        "session_id": approval.session_id,
        "request_id": approval.request_id,
        "turn_id": approval.turn_id,
        "agent_id": approval.agent_id,
        "method": approval.method,
        "tool": approval.tool or None,
        "input_hash": approval.input_hash,
        "approver": {"type": approval.approver_type, "id": approval.approver_id or None},
        "intent_extension": approval.extension,
        "created_at": render_ms(approval.created_at_ms),
        "expires_at": render_ms(approval.expires_at_ms),
        "decided_by": approval.decided_by,
        "decided_by_key": approval.decided_by_key,
        "decided_at": None if approval.decided_at_ms is None else render_ms(approval.decided_at_ms),
        "scope": None if approval.scope is None else approval.scope.value,
        "note": approval.note,
        "used_at": None if approval.used_at_ms is None else render_ms(approval.used_at_ms),
    }


def key_view(key: GuardianKey) -> dict[str, object]:
    """An API key, whose secret is not kept."""
    return {
        "key_id": key.key_id,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "approver": {"type": key.approver_type, "ids": sorted(key.approver_ids)},
        "created_at": render_ms(key.created_at_ms),
        "revoked_at": None if key.revoked_at_ms is None else render_ms(key.revoked_at_ms),
    }


def input_of(request: bytes | None) -> Mapping[str, object] | None:
    """The payload that an approver is asked about; None where its content is erased."""
    try:
        params = parse_object(request or b"").get("params")
    except JsonRejected:
        return None
    payload = params.get("payload") if isinstance(params, dict) else None
    return cast("Mapping[str, object]", payload) if isinstance(payload, dict) else None


def render_ms(at_ms: int) -> str:
    """Milliseconds since 1970 as RFC 3339."""
    return render_time(from_epoch_ms(at_ms))
