"""Turns that wait (contract 6, rows 15, 16 and 23 to 27): paused, answered, over; each change is one transaction.

Answers for a pause that begins in the transaction that writes why, and for one answer per question: whoever comes first
under the session's lock. A turn that waits has no owner once its worker has let go of it; the answer itself sends it
back to starting, where any worker may take it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, RowMapping, func, select

from turnkeeper.clock import epoch_ms
from turnkeeper.events.catalogue import tool_completed
from turnkeeper.events.envelope import Event, NewEvent
from turnkeeper.events.pauses import turn_resumed
from turnkeeper.store.charging import charge_rest
from turnkeeper.store.loading import load_session, load_turn
from turnkeeper.store.pause_rows import answer_of, from_approval, from_pause, from_rule, to_approval, to_pause
from turnkeeper.store.pause_tables import IS_OPEN, approval_rules, approvals, pauses
from turnkeeper.store.statements import add, change, find, load_row
from turnkeeper.store.steps import insert_turn_end
from turnkeeper.store.tables import sessions, turns
from turnkeeper.store.tx import (
    QUEUE_TOPIC,
    Tx,
    change_fenced,
    last_sequence,
    lock_session,
    number_events,
    store_events,
    write_turn,
)
from turnkeeper.store.withdrawals import withdraw_question
from turnkeeper.turns.activity import activity_news, doing_of
from turnkeeper.turns.approvals import Approval, ApprovalAnswer, ToolResultConflict, close, decide, rule_of
from turnkeeper.turns.lifecycle import Happening, transition
from turnkeeper.turns.model import Fence, Turn, TurnStatus
from turnkeeper.turns.pausing import NewPause, Pause, PauseOutcome, ToolAnswer, cause_of, resolved
from turnkeeper.turns.ports import NotFound

_GOES_ON: Final[Mapping[bool, Mapping[bool, Happening]]] = {
    False: {True: Happening.RESOLVED_WARM, False: Happening.RESOLVED_COLD},
    True: {True: Happening.EXPIRY_DENIED_WARM, False: Happening.EXPIRY_DENIED_COLD},
}
"""By whether the time was over, then by whether the sandbox is still there."""


def pause(tx: Tx, fence: Fence, new: NewPause, events: Sequence[NewEvent]) -> None:
    """Rows 15 and 16. Raises `StaleFence`, `IllegalTransition`."""
    lock_session(tx, fence.session_id)
    change_fenced(tx, fence, {})
    turn = load_turn(tx.conn, fence.turn_id, tx.now)
    deferred = new.reason == "deferral"
    row = transition(turn.status, Happening.STEP_DEFERRED if deferred else Happening.PAUSE_BEGAN)
    waiting: dict[str, object] = {"status": row.next.value, "active_ms": new.active_ms, "active_since": None}
    charge_rest(tx, turn.id, new.active_ms)
    stored = write_turn(tx, fence, waiting, [*events, *new.events, *_session_news(tx, turn, row.next)])
    if new.approval is not None:
        add(tx.conn, approvals, from_approval(new.approval))
    number = _next_number(tx.conn, turn.id)
    kept = {"turn_id": turn.id, "number": number, "session_id": turn.session_id, "paused_at": tx.now}
    add(tx.conn, pauses, {**from_pause(new), **kept})
    if deferred:
        told = next(event for event in stored if event.type == row.event_type)
        change(tx.conn, sessions, {"id": turn.session_id}, {"deferrals": sessions.c.deferrals + 1})
        insert_turn_end(tx, turn.session_id, turn.id, "deferred", told.id)


def open_pause(conn: Connection, turn_id: str) -> Pause | None:
    """The pause that a turn is in, or has not gone on from yet."""
    row = conn.execute(select(pauses).where(pauses.c.turn_id == turn_id, IS_OPEN)).mappings().one_or_none()
    if row is None:
        return None
    approval = None if row["approval_id"] is None else to_approval(load_row(conn, approvals, row["approval_id"]))
    deferred = select(func.count()).where(approvals.c.turn_id == turn_id, approvals.c.kind == "deferral")
    return replace(to_pause(row, approval), deferrals=conn.execute(deferred).scalar_one())


def resume(tx: Tx, fence: Fence) -> Turn:
    """Rows 23 and 25, with the sandbox still there. Raises `StaleFence`, `IllegalTransition`."""
    lock_session(tx, fence.session_id)
    change_fenced(tx, fence, {})
    turn = load_turn(tx.conn, fence.turn_id, tx.now)
    known = _require_resolved(tx, turn.id)
    row = transition(turn.status, _GOES_ON[known.outcome == "expired"][True])
    news = [_resumed(tx, turn, known, row.next), *_session_news(tx, turn, row.next)]
    write_turn(tx, fence, {"status": row.next.value, "active_since": tx.now}, news)
    set_over(tx, known)
    return load_turn(tx.conn, turn.id, tx.now)


def park(tx: Tx, fence: Fence, events: Sequence[NewEvent]) -> None:
    """Lets go of a turn that waits; one that was answered meanwhile goes on at once. Raises `StaleFence`."""
    lock_session(tx, fence.session_id)
    write_turn(tx, fence, None, events)
    turn = load_turn(tx.conn, fence.turn_id, tx.now)
    # Only what may still go on may be left alone.
    transition(turn.status, Happening.RESOLVED_COLD)
    change_fenced(tx, fence, {"owner": None})
    known = open_pause(tx.conn, turn.id)
    if known is not None and known.state == "resolved":
        _go_on_cold(tx, turn, known, ())
    tx.topics.update({turn.session_id, QUEUE_TOPIC})


def decide_approval(tx: Tx, approval_id: str, answer: ApprovalAnswer) -> Approval:
    """One answer to a question. Raises `NotFound`, `ApprovalDecided`, `ApprovalInputChanged`."""
    lock_session(tx, load_approval(tx.conn, approval_id).session_id)
    asked = load_approval(tx.conn, approval_id)
    answered = decide(asked, answer, tx.now)
    if answered is asked:
        return asked
    store_answer(tx, answered)
    rule = rule_of(answered)
    if rule is not None:
        add(tx.conn, approval_rules, from_rule(rule))
    outcome: PauseOutcome = "approved" if answered.status == "approved" else "denied"
    settle(tx, answered.turn_id, outcome, [answered])
    return answered


def answer_tool(tx: Tx, turn_id: str, tool_call_id: str, answer: ToolAnswer) -> Turn:
    """One answer to a client-side tool's call. Raises `NotFound`, `ToolResultConflict`."""
    session_id = load_turn(tx.conn, turn_id, tx.now).session_id
    lock_session(tx, session_id)
    known = _pause_of_call(tx.conn, turn_id, tool_call_id)
    if known.state == "waiting" and tx.now < known.expires_at:
        values = {"output": answer.output, "error": answer.error}
        change(tx.conn, pauses, {"turn_id": turn_id, "number": known.number}, values)
        settle(tx, turn_id, "answered", ())
    elif known.answer != answer:
        raise ToolResultConflict(
            "the call has another result, or its time is over",
            detail={"tool_call_id": tool_call_id, "outcome": known.outcome or "expired"},
        )
    return load_turn(tx.conn, turn_id, tx.now)


def settle(tx: Tx, turn_id: str, outcome: PauseOutcome, answered: Sequence[Approval]) -> None:
    """The turn has what it waited for. Nobody's turn goes back to starting; a worker that holds it goes on itself."""
    turn = load_turn(tx.conn, turn_id, tx.now)
    known = open_pause(tx.conn, turn_id)
    if known is None or known.state != "waiting":
        raise NotFound(f"{turn_id} waits for nothing")
    values: dict[str, object] = {"state": "resolved", "outcome": outcome, "resolved_at": tx.now}
    change(tx.conn, pauses, {"turn_id": turn_id, "number": known.number}, values)
    news = [resolved(approval, attempt=turn.attempt) for approval in answered]
    if load_row(tx.conn, turns, turn_id)["owner"] is None:
        _go_on_cold(tx, turn, replace(known, outcome=outcome, approval=answered[0] if answered else None), news)
    else:
        append_to_turn(tx, turn, news)
    tx.topics.update({turn.session_id, QUEUE_TOPIC})


def append_to_turn(tx: Tx, turn: Turn, new: Sequence[NewEvent], **also: object) -> Sequence[Event]:
    """Events of a turn, and changes of its row, for whoever holds the session's lock and needs no fence."""
    stored = number_events(tx, turn.session_id, new)
    values = {**also, **last_sequence(stored)}
    if values:
        change(tx.conn, turns, {"id": turn.id}, values)
    store_events(tx, stored)
    return stored


def store_answer(tx: Tx, approval: Approval) -> None:
    """Keeps what became of a question."""
    change(tx.conn, approvals, {"id": approval.id}, answer_of(approval))


def close_pause(tx: Tx, turn: Turn, before: Sequence[NewEvent]) -> list[NewEvent]:
    """Ends the pause of a turn that ends: the question is withdrawn, the call is over. The events that say so.

    `before` are events that are written anyway; one of them may end the call already.
    """
    if turn.status not in {TurnStatus.PAUSED, TurnStatus.STARTING}:
        return []
    known = open_pause(tx.conn, turn.id)
    if known is None:
        return []
    set_over(tx, known)
    news: list[NewEvent] = []
    if known.approval is not None and known.approval.status == "pending":
        withdrawn = close(known.approval, "canceled", tx.now)
        store_answer(tx, withdrawn)
        withdraw_question(tx, withdrawn)
        news.append(resolved(withdrawn, attempt=turn.attempt))
    if any(event.type == "tool.completed" and known.call.tool_call_id in event.data for event in before):
        return news
    return [*news, _never_run(tx, turn, known)]


def end_pause(tx: Tx, turn_id: str) -> None:
    """The turn runs again, so its pause is history."""
    known = open_pause(tx.conn, turn_id)
    if known is not None:
        set_over(tx, known)


def set_over(tx: Tx, known: Pause) -> None:
    """The pause is history."""
    values: dict[str, object] = {"state": "over", "outcome": known.outcome or "canceled"}
    change(tx.conn, pauses, {"turn_id": known.turn_id, "number": known.number}, values)


def load_approval(conn: Connection, approval_id: str) -> Approval:
    """One question. Raises `NotFound`."""
    row = find(conn, approvals, id=approval_id)
    if row is None:
        raise NotFound(f"there is no approval {approval_id}")
    return to_approval(row)


def _go_on_cold(tx: Tx, turn: Turn, known: Pause, news: Sequence[NewEvent]) -> None:
    row = transition(turn.status, _GOES_ON[known.outcome == "expired"][False])
    events = [*news, _resumed(tx, turn, known, row.next), *_session_news(tx, turn, row.next)]
    append_to_turn(tx, turn, events, status=row.next.value, tries=0)


def _session_news(tx: Tx, turn: Turn, status: TurnStatus) -> list[NewEvent]:
    session = load_session(tx.conn, turn.session_id)
    return activity_news(session, doing_of(session).once(turn, status))


def _resumed(tx: Tx, turn: Turn, known: Pause, status: TurnStatus) -> NewEvent:
    return turn_resumed(
        turn_id=turn.id,
        attempt=turn.attempt,
        status="running" if status is TurnStatus.RUNNING else "starting",
        resolved=(known.waits_for, str(known.outcome)),
        cause=cause_of(known),
        paused_ms=max(0, epoch_ms(tx.now) - epoch_ms(known.paused_at)),
    )


def _never_run(tx: Tx, turn: Turn, known: Pause) -> NewEvent:
    return tool_completed(
        turn_id=turn.id,
        attempt=turn.attempt,
        tool_call_id=known.call.tool_call_id,
        status="timeout" if known.state == "waiting" and known.expires_at <= tx.now else "canceled",
        output="",
        modified=False,
        truncated=False,
        duration_ms=0,
        source="platform",
    )


def _require_resolved(tx: Tx, turn_id: str) -> Pause:
    known = open_pause(tx.conn, turn_id)
    if known is None or known.state != "resolved":
        raise NotFound(f"{turn_id} still waits")
    return known


def _pause_of_call(conn: Connection, turn_id: str, tool_call_id: str) -> Pause:
    query = select(pauses).where(
        pauses.c.turn_id == turn_id, pauses.c.tool_call_id == tool_call_id, pauses.c.reason == "client_tool"
    )
    row: RowMapping | None = conn.execute(query).mappings().one_or_none()
    if row is None:
        raise NotFound(f"{turn_id} waits for no result of {tool_call_id}")
    return to_pause(row, None)


def _next_number(conn: Connection, turn_id: str) -> int:
    highest = conn.execute(select(func.max(pauses.c.number)).where(pauses.c.turn_id == turn_id)).scalar_one()
    return (highest or 0) + 1
