"""Turns as the API changes them: accepted, asked to stop (contract 6, 7, 9).

Who comes first is decided here, under the lock of the session's row: a turn gets its number in the queue when it is
accepted, and the lowest waiting one moves to the front when the front is free.
"""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, Connection, RowMapping, bindparam, func, select, update

from turnkeeper.events.catalogue import turn_cancel_requested, turn_queued
from turnkeeper.events.envelope import NewEvent
from turnkeeper.ids import is_id
from turnkeeper.store.agents import agent_by_id
from turnkeeper.store.blocking import blocker_of
from turnkeeper.store.budgets import open_account
from turnkeeper.store.claiming import know_shares
from turnkeeper.store.draining import require_open
from turnkeeper.store.endings import cancel_waiting, expire_waiting
from turnkeeper.store.files import files_of_turn
from turnkeeper.store.idempotency import hold_key, known_key, project_of, remember_key
from turnkeeper.store.loading import load_session, load_turn, promote
from turnkeeper.store.metadata_terms import keep_terms
from turnkeeper.store.price_checks import require_price_of_turn
from turnkeeper.store.rows import to_json, to_key
from turnkeeper.store.statements import add, find, load_row
from turnkeeper.store.tables import IS_QUEUED, api_keys, sessions, turns
from turnkeeper.store.tx import QUEUE_TOPIC, Tx, lock_session, number_events, store_events
from turnkeeper.turns.access import check_concurrent, check_queued
from turnkeeper.turns.activity import activity_news, doing_of
from turnkeeper.turns.budget_accounts import limits_document
from turnkeeper.turns.idempotency import IdempotencyKeyReused, KeyedRequest
from turnkeeper.turns.lifecycle import Happening, transition
from turnkeeper.turns.model import (
    CanceledBy,
    CancelMode,
    KeyLimits,
    Session,
    StopReason,
    Turn,
    TurnStatus,
)
from turnkeeper.turns.ports import Accepted, CancelEffect, NewTurn, NotFound, SessionClosed
from turnkeeper.turns.queueing import check_depth, check_idle, check_key_depth
from turnkeeper.turns.retention import IdempotencyTurnDeleted
from turnkeeper.turns.turn_files import render_turn_files

# Built once: every turn that is accepted asks these.
_WAITING_OF_KEY: Final = select(func.count()).where(turns.c.api_key_id == bindparam("key"), IS_QUEUED)
_AHEAD: Final = select(func.count()).where(
    turns.c.session_id == bindparam("session"), IS_QUEUED, turns.c.rank <= bindparam("lowest")
)


def accept_turn(tx: Tx, new: NewTurn) -> Accepted:
    """The turn, its key and its `turn.queued`, or the turn that the key already stands for.

    Raises `NotFound`, `SessionClosed`, `SessionBusy`, `QueueFull`, `IdempotencyKeyReused`, `PriceUnknown`.
    """
    if new.idempotency_key is not None:
        # Before the session's row, so that who waits for the first request keeps no session from going on.
        hold_key(tx, project_of(tx.conn, new.session_id), new.idempotency_key)
    row = lock_session(tx, new.session_id)
    replayed = replay(tx, new, row["project_id"])
    if replayed is not None:
        return replayed
    require_open(tx)
    session = load_session(tx.conn, new.session_id)
    if session.status != "open":
        raise SessionClosed(f"{session.id} takes no more turns", hint="Open another session.")
    front = find(tx.conn, turns, front_of=session.id)
    if new.on_busy == "reject":
        check_idle(None if front is None else front["id"])
    check_depth(session.queue_depth, tx.limits.queue_depth)
    _check_key(tx, new.api_key_id, at_front=front is None)
    turn_id = tx.ids.new("trn")
    rank = _make_way(tx, turn_id, new, front) if new.on_busy == "interrupt" and front is not None else 0
    _insert_turn(tx, turn_id, new, row, session, rank=rank)
    return Accepted(load_turn(tx.conn, turn_id, tx.now), replayed=False, events_after=row["last_sequence"])


def cancel_turn(
    tx: Tx, turn_id: str, *, mode: CancelMode, by: CanceledBy, reason: StopReason = StopReason.CANCELED
) -> tuple[Turn, CancelEffect]:
    """Ends a turn that nobody has claimed, asks a claimed one to stop, leaves an ended one. Raises `NotFound`."""
    session_id = tx.conn.execute(select(turns.c.session_id).where(turns.c.id == turn_id)).scalar_one_or_none()
    if session_id is None:
        raise NotFound(f"there is no turn {turn_id}")
    lock_session(tx, session_id)
    row = tx.conn.execute(select(turns).where(turns.c.id == turn_id)).mappings().one()
    turn = load_turn(tx.conn, turn_id, tx.now)
    effect: CancelEffect = "unchanged"
    if row["owner"] is not None:
        ask_to_stop(tx, turn, reason, mode, by)
        effect = "requested"
    elif not turn.status.terminal:
        cancel_waiting(tx, turn, reason, by)
        effect = "ended"
    return load_turn(tx.conn, turn_id, tx.now), effect


def ask_to_stop(tx: Tx, turn: Turn, reason: StopReason, mode: CancelMode, by: CanceledBy) -> None:
    """Leaves word for the turn's worker (row 17). The first to ask is the one who canceled; only `immediate` adds."""
    row = transition(turn.status, Happening.CANCEL_ASKED)
    if turn.cancel_requested_at is not None and mode in {turn.cancel_mode, "graceful"}:
        return
    values: dict[str, object] = {"cancel_mode": mode, "status": row.next.value}
    if turn.cancel_requested_at is None:
        values |= {
            "cancel_requested_at": tx.now,
            "cancel_stop_reason": reason.value,
            "canceled_by_json": to_json(asdict(by)),
        }
    stored = number_events(tx, turn.session_id, [_cancel_requested(tx, turn, mode, by)])
    values["last_sequence"] = stored[-1].sequence
    tx.conn.execute(update(turns).where(turns.c.id == turn.id, turns.c.terminal_event_id.is_(None)).values(values))
    store_events(tx, stored)
    tx.topics.add(QUEUE_TOPIC)


def _cancel_requested(tx: Tx, turn: Turn, mode: CancelMode, by: CanceledBy) -> NewEvent:
    grace = timedelta(milliseconds=0 if mode == "immediate" else tx.limits.cancel_grace_ms)
    return turn_cancel_requested(
        turn_id=turn.id, mode=mode, canceled_by=asdict(by), deadline=tx.now + grace, attempt=turn.attempt or None
    )


def replay(tx: Tx, new: NewTurn, project_id: str) -> Accepted | None:
    """The turn that the request's key stands for in the project already.

    Raises `IdempotencyKeyReused`, `IdempotencyTurnDeleted`.
    """
    if new.idempotency_key is None:
        return None
    known = known_key(tx.conn, project_id, new.idempotency_key)
    if known is None:
        return None
    if not is_id(known.thing_id, "trn"):
        raise IdempotencyKeyReused(known.thing_id)
    turn = load_turn(tx.conn, known.thing_id, tx.now)
    if load_row(tx.conn, sessions, turn.session_id)["delete_requested_at"] is not None:
        raise IdempotencyTurnDeleted(
            f"this Idempotency-Key stands for {turn.id}, which was deleted", detail={"turn_id": turn.id}
        )
    if known.fingerprint != new.fingerprint:
        raise IdempotencyKeyReused(turn.id)
    return Accepted(turn, replayed=True, events_after=turn.first_sequence - 1)


def late_starts(conn: Connection, now: datetime, limit: int) -> list[tuple[str, str]]:
    """Waiting turns that nobody holds and that did not start in time, each with its session."""
    query = select(turns.c.id, turns.c.session_id).where(*_is_late(now)).order_by(turns.c.session_id).limit(limit)
    return [(turn_id, session_id) for turn_id, session_id in conn.execute(query).all()]


def expire_start(tx: Tx, turn_id: str, session_id: str) -> bool:
    """Row 3, for one turn if it is still late; whether it was."""
    lock_session(tx, session_id)
    if tx.conn.execute(select(turns.c.id).where(turns.c.id == turn_id, *_is_late(tx.now))).one_or_none() is None:
        return False
    expire_waiting(tx, load_turn(tx.conn, turn_id, tx.now))
    return True


def _is_late(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return IS_QUEUED, turns.c.start_by.is_not(None), turns.c.start_by <= now, turns.c.owner.is_(None)


def _check_key(tx: Tx, api_key_id: str | None, *, at_front: bool) -> None:
    if api_key_id is None:
        return
    waiting = tx.conn.execute(_WAITING_OF_KEY, {"key": api_key_id}).scalar_one()
    key = find(tx.conn, api_keys, id=api_key_id)
    limits = KeyLimits() if key is None else to_key(key).limits
    check_key_depth(waiting, tx.limits.key_queue_depth)
    check_queued(waiting, limits)
    if at_front and limits.concurrent_turns is not None:
        fronts = select(func.count()).where(turns.c.api_key_id == api_key_id, turns.c.front_of.is_not(None))
        check_concurrent(tx.conn.execute(fronts).scalar_one(), limits)


def _make_way(tx: Tx, turn_id: str, new: NewTurn, front: RowMapping) -> int:
    """Ends or asks to end the turn that is active; the rank that lets the new one go before all that wait."""
    lowest = select(func.min(turns.c.rank)).where(turns.c.session_id == new.session_id, IS_QUEUED)
    rank = min(tx.conn.execute(lowest).scalar_one() or 0, 0) - 1
    active = load_turn(tx.conn, front["id"], tx.now)
    by = CanceledBy("system" if new.api_key_id is None else "api_key", new.api_key_id, f"superseded by {turn_id}")
    if front["owner"] is not None:
        ask_to_stop(tx, active, StopReason.SUPERSEDED, "graceful", by)
    elif active.status is not TurnStatus.QUEUED:
        cancel_waiting(tx, active, StopReason.SUPERSEDED, by, followed=True)
    # A front that nobody has begun with is one of those that wait, and gives its place to the new turn.
    untouched = (turns.c.front_of == new.session_id, IS_QUEUED, turns.c.owner.is_(None))
    tx.conn.execute(update(turns).where(*untouched).values(front_of=None, front_at=None))
    return rank


def _insert_turn(tx: Tx, turn_id: str, new: NewTurn, locked: RowMapping, session: Session, *, rank: int) -> None:
    accepted = transition(None, Happening.ACCEPTED)
    know_shares(tx, locked["project_id"], new.api_key_id or "")
    seq = locked["last_seq"] + 1
    queued = _queued(tx, turn_id, new, session, rank=rank)
    told = [queued, *activity_news(session, doing_of(session).with_another())]
    stored = number_events(tx, session.id, told, last_seq=seq)
    input_files = files_of_turn(tx.conn, locked["project_id"], new.file_ids)
    values: dict[str, object] = {
        **_as_posted(new),
        "input_files_json": render_turn_files(input_files),
        "id": turn_id,
        "project_id": locked["project_id"],
        "agent_id": session.agent_id,
        "agent_version": session.agent_version,
        "pool": agent_by_id(tx.conn, session.agent_id, session.agent_version).pool or "",
        "seq": seq,
        "rank": rank,
        "status": accepted.next.value,
        "fence": 0,
        "attempt": 0,
        "tries": 0,
        "created_at": tx.now,
        "first_sequence": stored[0].sequence,
        "last_sequence": stored[0].sequence,
    }
    add(tx.conn, turns, values)
    if new.budget is not None:
        open_account(tx, "turn", turn_id, new.budget, project_id=str(values["project_id"]))
    require_price_of_turn(tx, values)
    keep_terms(tx, "turn", turn_id, str(values["project_id"]), new.metadata_json)
    store_events(tx, stored)
    if new.idempotency_key is not None:
        request = KeyedRequest(locked["project_id"], new.idempotency_key, new.fingerprint or "")
        remember_key(tx, request, turn_id)
    promote(tx, session.id)
    tx.topics.add(QUEUE_TOPIC)


def _as_posted(new: NewTurn) -> dict[str, object]:
    return {
        "budget_json": None if new.budget is None else to_json(limits_document(new.budget)),
        "session_id": new.session_id,
        "input_text": new.input_text,
        "input_json": new.input_json,
        "output_schema_json": new.output_schema_json,
        "metadata_json": new.metadata_json,
        "idempotency_key": new.idempotency_key,
        "max_repair_attempts": new.max_repair_attempts,
        "max_attempts": new.max_attempts,
        "on_busy": new.on_busy,
        "start_by": new.start_by,
        "api_key_id": new.api_key_id or "",
        "retry_of": new.retry_of,
    }


def _queued(tx: Tx, turn_id: str, new: NewTurn, session: Session, *, rank: int) -> NewEvent:
    blocker = blocker_of(tx.conn, session.id)
    ahead = tx.conn.execute(_AHEAD, {"session": session.id, "lowest": rank}).scalar_one()
    return turn_queued(
        turn_id=turn_id,
        idempotency_key=new.idempotency_key,
        metadata_json=new.metadata_json,
        position=ahead,
        blocked_by=None if blocker is None else asdict(blocker),
        on_busy=new.on_busy,
        has_output_schema=new.output_schema_json is not None,
        retry_of=new.retry_of,
        budget=None if new.budget is None else limits_document(new.budget),
    )
