"""ACS steps of a session, in the order they must be sent (contract, amendments 2 to 4): journal and outbox in one.

A step is here before it is sent, with the request id it keeps for ever, so that a crash leaves a question and not a
guess. What the Guardian said last is also the session's witnessed head.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import ColumnElement, RowMapping, bindparam, func, select, update
from sqlalchemy.engine import Connection

from turnkeeper.errors import LocalProtocolError
from turnkeeper.events.envelope import NewEvent
from turnkeeper.ids import uuid_of
from turnkeeper.store.rows import to_json, to_step
from turnkeeper.store.statements import added, change, find
from turnkeeper.store.tables import IS_DEAD, IS_PENDING, sessions, steps, turns
from turnkeeper.store.tx import QUEUE_TOPIC, Tx, append_events, lock_session, write_turn
from turnkeeper.turns.model import Fence, NewStep, Step, StepAnswer, StepCounts, Turn, TurnOutcome
from turnkeeper.turns.payloads import SKILL_LOAD, SKILL_UNLOAD
from turnkeeper.turns.ports import NotFound
from turnkeeper.turns.skill_steps import open_loads, unload_step

TURN_START: Final = "steps/turnStart"
TURN_END: Final = "steps/turnEnd"
TOOL_CALL_REQUEST: Final = "steps/toolCallRequest"

MAX_PENDING: Final = 1_000
MAX_STEPS: Final = 10_000

_NEXT_ORDINAL: Final = (
    update(sessions)
    .where(sessions.c.id == bindparam("session_key"))
    .values(last_ordinal=sessions.c.last_ordinal + 1)
    .returning(sessions.c.last_ordinal)
)


def ask_step(tx: Tx, session_id: str, new: NewStep, fence: Fence | None, events: Sequence[NewEvent]) -> Step:
    """Persists a step as pending, with the events that go with asking. The same request id again is the same step."""
    locked = lock_session(tx, session_id)
    known = _find(tx.conn, session_id, new.request_id)
    if known is not None:
        return to_step(known)
    ordinal = locked["last_ordinal"] + 1
    _write_events(tx, session_id, fence, events, last_ordinal=ordinal)
    return to_step(_insert(tx, session_id, new, ordinal))


def owe_steps(tx: Tx, fence: Fence, new: Sequence[NewStep], events: Sequence[NewEvent]) -> None:
    """Persists steps as pending, with the events that go with them. Raises `StaleFence`."""
    lock_session(tx, fence.session_id)
    write_turn(tx, fence, None, events)
    for step in new:
        insert_step(tx, fence.session_id, step)


def insert_step(tx: Tx, session_id: str, new: NewStep) -> RowMapping:
    """The step at the end of the session's sends."""
    return _insert(tx, session_id, new, tx.conn.execute(_NEXT_ORDINAL, {"session_key": session_id}).scalar_one())


def _insert(tx: Tx, session_id: str, new: NewStep, ordinal: int) -> RowMapping:
    values: dict[str, object] = {
        "session_id": session_id,
        "ordinal": ordinal,
        "request_id": new.request_id,
        "method": new.method,
        "turn_id": new.turn_id,
        "in_window": new.in_window,
        "payload_json": new.payload_json,
        "outcome": new.outcome,
        "state": "pending",
        "reason_codes_json": "[]",
        "attempts": 0,
        "created_at": tx.now,
        "thread_id": new.thread_id,
    }
    return added(tx.conn, steps, values)


def insert_turn_end(tx: Tx, session_id: str, turn_id: str, outcome: TurnOutcome, event_id: str) -> None:
    """The turnEnd of a terminal event. Its request id is the event's, so a repeated send is recognised."""
    insert_step(
        tx,
        session_id,
        NewStep(
            request_id=uuid_of(event_id),
            method=TURN_END,
            payload_json=None,
            in_window=False,
            turn_id=turn_id,
            outcome=outcome,
        ),
    )


def insert_unloads(tx: Tx, turn: Turn, *, well: bool, in_window: bool) -> None:
    """What is due of the skills that a turn, or an attempt of it, has loaded, the last one first."""
    query = select(steps).where(
        steps.c.session_id == turn.session_id,
        steps.c.turn_id == turn.id,
        steps.c.method.in_([SKILL_LOAD, SKILL_UNLOAD]),
    )
    rows = tx.conn.execute(query.order_by(steps.c.ordinal)).mappings().all()
    for name in reversed(open_loads([to_step(row) for row in rows])):
        reason = "explicit_unload" if well else "error"
        step = unload_step(turn.id, name, reason, tx.ids.uuid(), in_window=in_window)
        insert_step(tx, turn.session_id, step)


def answer_step(
    tx: Tx,
    session_id: str,
    request_id: str,
    answer: StepAnswer,
    *,
    fence: Fence | None,
    events: Sequence[NewEvent],
) -> None:
    """What became of a pending step; one that has been answered keeps its answer. Raises `NotFound`."""
    lock_session(tx, session_id)
    row = _require(tx.conn, session_id, request_id)
    if row["state"] != "pending":
        return
    if answer.state == "pending":
        raise LocalProtocolError("a step is not answered with pending")
    is_own = row["thread_id"] is None
    head = {"witnessed_head": answer.chain_hash} if is_own and answer.chain_hash is not None else {}
    _write_events(tx, session_id, fence, events, **head)
    changes: dict[str, object] = {
        "state": answer.state,
        "decision": answer.decision,
        "chain_hash": answer.chain_hash,
        "reasoning": answer.reasoning,
        "reason_codes_json": to_json(answer.reason_codes),
        "error_code": answer.error_code,
        "answered_at": tx.now,
    }
    _change(tx, row, changes)
    tx.topics.add(session_id)
    if fence is None:
        # Sent for a turn that has ended: a session may now be done. A running turn's step is no news for the queue.
        tx.topics.add(QUEUE_TOPIC)


def attempt_step(tx: Tx, session_id: str, request_id: str, *, payload_json: str | None) -> Step:
    """Counts a send. What was left open in a payload is frozen by the first send that has it. Raises `NotFound`."""
    lock_session(tx, session_id)
    row = _require(tx.conn, session_id, request_id)
    changes: dict[str, object] = {"attempts": row["attempts"] + 1}
    if row["payload_json"] is None or (payload_json is not None and row["attempts"] == 0):
        changes["payload_json"] = payload_json
    _change(tx, row, changes)
    return to_step(_require(tx.conn, session_id, request_id))


def steps_of(
    conn: Connection,
    session_id: str,
    *,
    turn_id: str | None,
    before: int | None = None,
    limit: int | None = None,
    thread_id: str | None = None,
) -> tuple[Step, ...]:
    """The newest steps of a session or a turn, or of those below the ordinal `before`: `MAX_STEPS`, oldest first."""
    query = select(steps).where(steps.c.session_id == session_id, _in_chain(thread_id))
    if turn_id is not None:
        query = query.where(steps.c.turn_id == turn_id)
    if before is not None:
        query = query.where(steps.c.ordinal < before)
    query = query.order_by(steps.c.ordinal.desc()).limit(min(limit or MAX_STEPS, MAX_STEPS))
    rows = conn.execute(query).mappings().all()
    return tuple(to_step(row) for row in reversed(rows))


def thread_steps_of(conn: Connection, session_id: str, *, turn_id: str | None) -> tuple[Step, ...]:
    """The newest `MAX_STEPS` steps of subagents of a session or a turn, oldest first."""
    query = select(steps).where(steps.c.session_id == session_id, steps.c.thread_id.is_not(None))
    if turn_id is not None:
        query = query.where(steps.c.turn_id == turn_id)
    rows = conn.execute(query.order_by(steps.c.ordinal.desc()).limit(MAX_STEPS)).mappings().all()
    return tuple(to_step(row) for row in reversed(rows))


def pending_steps(conn: Connection, session_id: str) -> tuple[Step, ...]:
    """The first `MAX_PENDING` unsettled steps of a session, in the order they must be sent."""
    query = select(steps).where(steps.c.session_id == session_id, IS_PENDING).order_by(steps.c.ordinal)
    return tuple(to_step(row) for row in conn.execute(query.limit(MAX_PENDING)).mappings())


def sessions_with_pending_steps(conn: Connection, limit: int) -> tuple[str, ...]:
    """Sessions with something to send and no worker that owns their front, which would send it itself."""
    owned = select(turns.c.id).where(turns.c.front_of == steps.c.session_id, turns.c.owner.is_not(None)).exists()
    query = select(steps.c.session_id).where(IS_PENDING, ~owned).group_by(steps.c.session_id)
    return tuple(conn.execute(query.order_by(func.min(steps.c.created_at)).limit(limit)).scalars())


def dead_letters(conn: Connection, limit: int) -> tuple[Step, ...]:
    """Steps a Guardian refused for good, newest first."""
    query = select(steps).where(IS_DEAD).order_by(steps.c.created_at.desc(), steps.c.ordinal.desc()).limit(limit)
    return tuple(to_step(row) for row in conn.execute(query).mappings())


def step_counts(conn: Connection, session_id: str, turn_id: str, thread_id: str | None = None) -> StepCounts:
    """The entries of the window that is open, or that the pending turnEnd closes, in one chain.

    `None` where a step's fate is unknown (amendment 4).
    """
    query = select(steps).where(
        steps.c.session_id == session_id,
        steps.c.turn_id == turn_id,
        steps.c.in_window,
        _in_chain(thread_id),
        steps.c.ordinal > _last_end(conn, session_id, turn_id, settled=True, thread_id=thread_id),
    )
    rows = conn.execute(query).mappings().all()
    tool_calls = [row for row in rows if row["method"] == TOOL_CALL_REQUEST]
    return StepCounts(step_count=_count(rows), tool_call_count=_count(tool_calls))


def window_is_open(conn: Connection, session_id: str, turn_id: str) -> bool:
    """Whether a turnStart was, or will be, sent and not refused, and has no turnEnd yet; then one must follow."""
    query = select(steps.c.ordinal).where(
        steps.c.session_id == session_id,
        steps.c.turn_id == turn_id,
        steps.c.method == TURN_START,
        _in_chain(None),
        steps.c.state.in_(["pending", "answered"]),
        steps.c.ordinal > _last_end(conn, session_id, turn_id),
    )
    return conn.execute(query.limit(1)).first() is not None


def _last_end(
    conn: Connection, session_id: str, turn_id: str, *, settled: bool = False, thread_id: str | None = None
) -> int:
    of_turn = (steps.c.session_id == session_id, steps.c.turn_id == turn_id, steps.c.method == TURN_END)
    query = select(func.max(steps.c.ordinal)).where(*of_turn, _in_chain(thread_id))
    if settled:
        query = query.where(steps.c.state != "pending")
    return conn.execute(query).scalar_one() or 0


def _in_chain(thread_id: str | None) -> ColumnElement[bool]:
    return steps.c.thread_id.is_(None) if thread_id is None else steps.c.thread_id == thread_id


def _count(rows: Sequence[RowMapping]) -> int | None:
    if any(row["state"] == "pending" for row in rows):
        return None
    return sum(1 for row in rows if to_step(row).has_entry)


def _write_events(tx: Tx, session_id: str, fence: Fence | None, events: Sequence[NewEvent], **session: object) -> None:
    """Events, and columns of the session's row: in one statement where there are both."""
    if session and not events:
        change(tx.conn, sessions, {"id": session_id}, session)
        session = {}
    if fence is None:
        append_events(tx, session_id, events, **session)
    else:
        write_turn(tx, fence, None, events, **session)


def _change(tx: Tx, row: RowMapping, changes: Mapping[str, object]) -> None:
    change(tx.conn, steps, {"session_id": row["session_id"], "ordinal": row["ordinal"]}, changes)


def _find(conn: Connection, session_id: str, request_id: str) -> RowMapping | None:
    return find(conn, steps, session_id=session_id, request_id=request_id)


def _require(conn: Connection, session_id: str, request_id: str) -> RowMapping:
    row = _find(conn, session_id, request_id)
    if row is None:
        raise NotFound(f"{session_id} has no step {request_id}")
    return row
