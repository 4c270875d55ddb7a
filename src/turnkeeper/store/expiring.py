"""Pauses whose time is over (contract 6, rows 25, 25a and 26), whoever notices first.

Answers for one outcome per pause: a question that nobody answered denies its step, or is asked of a person where the
Guardian said so; a client-side tool that nobody answered fails its turn.
"""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, select

from turnkeeper.events.pauses import turn_paused
from turnkeeper.store.agents import agent_by_id
from turnkeeper.store.endings import finish, tally_of
from turnkeeper.store.loading import load_turn
from turnkeeper.store.pause_rows import from_approval
from turnkeeper.store.pause_tables import IS_WAITING, approvals, pauses
from turnkeeper.store.pauses import append_to_turn, open_pause, settle, store_answer
from turnkeeper.store.statements import add, change, load_row
from turnkeeper.store.steps import window_is_open
from turnkeeper.store.tables import turns
from turnkeeper.store.tx import Tx, lock_session
from turnkeeper.store.withdrawals import withdraw_question
from turnkeeper.turns.approvals import Approval, close
from turnkeeper.turns.lifecycle import Happening, transition
from turnkeeper.turns.model import Ending, StopReason, Turn, TurnStatus
from turnkeeper.turns.pausing import Pause, after, requested, resolved
from turnkeeper.turns.results import turn_error, unpublished


def due_pauses(conn: Connection, now: datetime, limit: int) -> tuple[tuple[str, str], ...]:
    """Turns, each with its session, whose pause is over and not settled yet; the oldest first."""
    query = select(pauses.c.turn_id, pauses.c.session_id).where(IS_WAITING, pauses.c.expires_at <= now)
    rows = conn.execute(query.order_by(pauses.c.expires_at).limit(limit)).all()
    return tuple((turn_id, session_id) for turn_id, session_id in rows)


def expire_pause(tx: Tx, turn_id: str, session_id: str) -> bool:
    """Settles one pause if its time is over; whether it was."""
    lock_session(tx, session_id)
    known = open_pause(tx.conn, turn_id)
    if known is None or known.state != "waiting" or known.expires_at > tx.now:
        return False
    turn = load_turn(tx.conn, turn_id, tx.now)
    if known.approval is None:
        return _fail(tx, turn)
    expired = close(known.approval, "expired", tx.now)
    store_answer(tx, expired)
    if expired.timeout_decision == "ask":
        _ask(tx, turn, known, expired)
    else:
        withdraw_question(tx, expired)
        settle(tx, turn_id, "expired", [expired])
    return True


def _ask(tx: Tx, turn: Turn, known: Pause, expired: Approval) -> None:
    """Row 25a: the deferral is over, and a person is asked."""
    row = transition(turn.status, Happening.EXPIRY_ASKS)
    limits = agent_by_id(tx.conn, turn.agent_id, turn.agent_version).limits
    expires_at = after(tx.now, limits.pause_expiry_ms or tx.limits.pause_expiry_ms)
    asked = replace(
        expired,
        id=tx.ids.new("apr"),
        kind="ask",
        created_at=tx.now,
        expires_at=expires_at,
        timeout_decision="deny",
        status="pending",
        decided_at=None,
        decided_by=None,
    )
    add(tx.conn, approvals, from_approval(asked))
    values: dict[str, object] = {"reason": "approval", "approval_id": asked.id, "expires_at": expires_at}
    change(tx.conn, pauses, {"turn_id": turn.id, "number": known.number}, values)
    paused = turn_paused(
        turn_id=turn.id, attempt=turn.attempt, reason="approval", waits_for=[asked.id], expires_at=expires_at
    )
    news = [
        resolved(expired, attempt=turn.attempt),
        requested(asked, attempt=turn.attempt, inline_bytes=16_384),
        paused,
    ]
    append_to_turn(tx, turn, news, status=row.next.value)


def _fail(tx: Tx, turn: Turn) -> bool:
    """Row 26, unless a worker still holds the turn: it lets go within its warm time."""
    if load_row(tx.conn, turns, turn.id)["owner"] is not None:
        return False
    finish(tx, turn, _expired(tx, turn), (), None)
    return True


def _expired(tx: Tx, turn: Turn) -> Ending:
    error = turn_error(StopReason.PAUSE_EXPIRED, "client_tool_unanswered", "the app did not answer a tool call in time")
    return Ending(
        happening=Happening.EXPIRY_FAILED,
        status=TurnStatus.FAILED,
        stop_reason=StopReason.PAUSE_EXPIRED,
        source="platform",
        text="",
        result_json=None,
        result_error=unpublished(turn, tally_of(tx, turn.id)),
        duration_ms=turn.active_ms,
        turn_outcome="error" if window_is_open(tx.conn, turn.session_id, turn.id) else None,
        error=error,
    )
