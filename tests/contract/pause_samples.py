"""Pauses as a worker would begin them."""

from dataclasses import replace
from datetime import timedelta

from turnkeeper.clock import Clock
from turnkeeper.events.pauses import Deferral, turn_deferred, turn_paused
from turnkeeper.ids import IdSource
from turnkeeper.turns.approvals import Approval, PendingCall
from turnkeeper.turns.model import Fence
from turnkeeper.turns.pausing import NewPause, hash_of, requested

INPUT = '{"command":"ls"}'
DAY_MS = 86_400_000


def a_pause(
    clock: Clock, ids: IdSource, fence: Fence, *, kind: str = "ask", wait_ms: int = DAY_MS, timeout: str = "deny"
) -> NewPause:
    """A pause about a shell call; `kind` is ask, deferral or client."""
    now = clock.now()
    call = PendingCall(ids.new("tcl"), "shell", "builtin", INPUT, hash_of(INPUT), ids.uuid())
    expires_at = now + timedelta(milliseconds=wait_ms)
    approval = Approval(
        id=ids.new("apr"),
        kind="deferral" if kind == "deferral" else "ask",
        origin="guardian",
        session_id=fence.session_id,
        turn_id=fence.turn_id,
        call=call,
        question="May it?\0",
        reasons=("later",),
        created_at=now,
        expires_at=expires_at,
        timeout_decision="ask" if timeout == "ask" else "deny",
    )
    if kind == "client":
        told = turn_paused(
            turn_id=fence.turn_id, attempt=1, reason="client_tool", waits_for=[call.tool_call_id], expires_at=expires_at
        )
        return NewPause("client_tool", replace(call, kind="client"), expires_at, 40, None, (told,))
    asked = requested(approval, attempt=1, inline_bytes=100)
    if kind == "deferral":
        deferral = Deferral("pending_dependency", "human_approval", wait_ms, timeout)
        told = turn_deferred(
            turn_id=fence.turn_id,
            attempt=1,
            tool_call_id=call.tool_call_id,
            deferral=deferral,
            approval_id=approval.id,
            deferrals=1,
        )
        return NewPause("deferral", call, expires_at, 40, approval, (asked, told))
    told = turn_paused(
        turn_id=fence.turn_id, attempt=1, reason="approval", waits_for=[approval.id], expires_at=expires_at
    )
    return NewPause("approval", call, expires_at, 40, approval, (asked, told))
