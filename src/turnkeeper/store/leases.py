"""Turns in a worker's hands: taken, kept, given back, taken over, moved on.

Answers for one owner at a time. Everything a worker writes names turn, owner and fence number in its WHERE; who comes
with an old fence changes nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import ColumnElement, Connection, RowMapping, func, insert, or_, select, update

from turnkeeper.clock import epoch_ms
from turnkeeper.errors import LocalProtocolError
from turnkeeper.events.envelope import Event, NewEvent
from turnkeeper.store.agents import agent_by_id
from turnkeeper.store.draining import is_draining
from turnkeeper.store.endings import finish
from turnkeeper.store.loading import load_session, load_turn
from turnkeeper.store.pauses import end_pause
from turnkeeper.store.rows import to_fence, to_json
from turnkeeper.store.statements import load_row
from turnkeeper.store.steps import insert_step
from turnkeeper.store.tables import submissions, turns
from turnkeeper.store.tx import QUEUE_TOPIC, Tx, change_fenced, lock_session, write_turn
from turnkeeper.turns.lifecycle import MAX_START_TRIES, Happening, IllegalTransition, Transition, transition
from turnkeeper.turns.model import Claim, Ending, Fence, Hold, NewStep, Submission, Turn, TurnStatus

MAX_HELD: Final = 1_000


def held_by_others(conn: Connection, owner: str, pools: Collection[str]) -> tuple[Hold, ...]:
    """The turns that somebody else holds, oldest first, at most `MAX_HELD`.

    One that would have to be started is left to whoever has the runners for it.
    """
    needs_no_start = turns.c.status.in_([TurnStatus.RUNNING.value, TurnStatus.PAUSED.value])
    is_ours = or_(needs_no_start, turns.c.cancel_mode.is_not(None), turns.c.pool.in_(["", *pools]))
    return _held(conn, turns.c.owner.is_not(None), turns.c.owner != owner, is_ours)


def held_by(conn: Connection, owner: str) -> tuple[Hold, ...]:
    """The turns that `owner` holds, oldest first, at most `MAX_HELD`."""
    return _held(conn, turns.c.owner == owner)


def _held(conn: Connection, *where: ColumnElement[bool]) -> tuple[Hold, ...]:
    query = select(turns).where(*where).order_by(turns.c.id).limit(MAX_HELD)
    return tuple(Hold(to_fence(row), row["beats"]) for row in conn.execute(query).mappings())


def take_over(tx: Tx, owner: str, holds: Sequence[Hold]) -> tuple[Claim, ...]:
    """Those of the turns that are still held as they were seen, now `owner`'s."""
    taken: list[Claim] = []
    # Who takes no more turns still ends those that a dead worker was running; the others can wait.
    may_be_taken = (turns.c.status == TurnStatus.RUNNING.value,) if is_draining(tx.conn) else ()
    # In one order, so that two who take over the same turns do not wait for each other.
    for hold in sorted(holds, key=lambda hold: hold.fence.session_id):
        fence = hold.fence
        lock_session(tx, fence.session_id)
        last_beat_at = load_row(tx.conn, turns, fence.turn_id)["beat_at"]
        as_seen = (turns.c.owner == fence.owner, turns.c.fence == fence.number, turns.c.beats == hold.beats)
        row = take(tx, owner, turns.c.id == fence.turn_id, *as_seen, *may_be_taken)
        if row is not None:
            taken.append(replace(claimed(tx, row), last_beat_at=last_beat_at))
            tx.topics.add(fence.session_id)
    return tuple(taken)


def renew(tx: Tx, fence: Fence) -> Turn:
    """Moves the lease. Raises `StaleFence`."""
    change_fenced(tx, fence, {"beats": turns.c.beats + 1, "beat_at": tx.now})
    return load_turn(tx.conn, fence.turn_id, tx.now)


def release(tx: Tx, fence: Fence) -> None:
    """Gives a claim back whose turn is still queued. Raises `StaleFence`, `IllegalTransition`."""
    lock_session(tx, fence.session_id)
    turn = fenced_turn(tx, fence)
    # Only what may still be dispatched may wait again.
    transition(turn.status, Happening.DISPATCHED)
    change_fenced(tx, fence, {"owner": None, "beat_at": None})
    tx.topics.add(QUEUE_TOPIC)


def starting(tx: Tx, fence: Fence, events: Sequence[NewEvent]) -> Turn:
    """Row 8; a turn that was asked to stop stays where it is. Raises `StaleFence`, `IllegalTransition`."""
    lock_session(tx, fence.session_id)
    turn = fenced_turn(tx, fence)
    # Whoever interrupts is promised the place before all that have not started, and is in the queue already.
    if turn.cancel_mode is not None:
        return turn
    return _move(tx, fence, transition(turn.status, Happening.DISPATCHED), values={"tries": 1}, events=events)


def started(tx: Tx, fence: Fence, events: Sequence[NewEvent], *, resumed: bool = False) -> Turn:
    """Row 9: from here there is an attempt, or a paused one goes on. Raises `StaleFence`, `IllegalTransition`."""
    lock_session(tx, fence.session_id)
    if resumed:
        end_pause(tx, fence.turn_id)
    values: dict[str, object] = {
        "attempt": turns.c.attempt + (0 if resumed else 1),
        "started_at": func.coalesce(turns.c.started_at, epoch_ms(tx.now)),
        "active_since": tx.now,
    }
    row = transition(fenced_turn(tx, fence).status, Happening.STARTED)
    return _move(tx, fence, row, values=values, events=events)


def retry_start(tx: Tx, fence: Fence) -> Turn:
    """Row 10: one more try with a new fence number. Raises `StaleFence`, `IllegalTransition` when none is left."""
    lock_session(tx, fence.session_id)
    turn = fenced_turn(tx, fence)
    transition(turn.status, Happening.START_LOST)
    if turn.tries >= MAX_START_TRIES:
        raise IllegalTransition(f"{turn.id} has had {turn.tries} tries to start")
    change_fenced(tx, fence, {"tries": turn.tries + 1, "fence": fence.number + 1})
    return load_turn(tx.conn, fence.turn_id, tx.now)


def submit(tx: Tx, fence: Fence, submission: Submission, events: Sequence[NewEvent]) -> None:
    """Keeps a submitted value. Raises `StaleFence`."""
    write_turn(tx, fence, None, events)
    values: dict[str, object] = {
        "turn_id": fence.turn_id,
        "submission": submission.submission,
        "valid": submission.valid,
        "value_json": submission.value_json,
        "errors_json": to_json([dict(error) for error in submission.errors]),
        "published": submission.published,
        "created_at": tx.now,
    }
    tx.conn.execute(insert(submissions), values)


def end(tx: Tx, fence: Fence, ending: Ending, before: Sequence[NewEvent], steps: Sequence[NewStep] = ()) -> Event:
    """The terminal event; `steps` are sent before its turnEnd. Raises `StaleFence`, `IllegalEnding`."""
    lock_session(tx, fence.session_id)
    turn = fenced_turn(tx, fence)
    for step in steps:
        insert_step(tx, fence.session_id, step)
    return finish(tx, turn, ending, before, fence)


def fenced_turn(tx: Tx, fence: Fence) -> Turn:
    """The turn that a current fence stands for. Raises `StaleFence`."""
    change_fenced(tx, fence, {})
    return load_turn(tx.conn, fence.turn_id, tx.now)


def submissions_of(conn: Connection, turn_id: str) -> Sequence[RowMapping]:
    """The stored submissions of a turn, in order; their number is bounded by the turn's repair attempts."""
    query = select(submissions).where(submissions.c.turn_id == turn_id).order_by(submissions.c.submission)
    return conn.execute(query).mappings().all()


def _move(tx: Tx, fence: Fence, row: Transition, *, values: dict[str, object], events: Sequence[NewEvent]) -> Turn:
    require_event(row, events)
    write_turn(tx, fence, {**values, "status": row.next.value}, events)
    return load_turn(tx.conn, fence.turn_id, tx.now)


def require_event(row: Transition, events: Sequence[NewEvent]) -> None:
    """Raises `LocalProtocolError` where a row is written without its event."""
    if row.event_type not in {event.type for event in events}:
        raise LocalProtocolError(f"row {row.row} is written together with {row.event_type}")


def take(tx: Tx, owner: str, *where: ColumnElement[bool]) -> RowMapping | None:
    """Makes the one turn that fits `owner`'s, with a new fence; its row, or None where none fits any more."""
    values = {"owner": owner, "fence": turns.c.fence + 1, "beats": turns.c.beats + 1, "beat_at": tx.now}
    return tx.conn.execute(update(turns).where(*where).values(values).returning(turns)).mappings().one_or_none()


def claimed(tx: Tx, row: RowMapping) -> Claim:
    """A turn that was taken, with its session and agent."""
    turn = load_turn(tx.conn, row["id"], tx.now)
    return Claim(
        fence=to_fence(row),
        turn=turn,
        session=load_session(tx.conn, turn.session_id),
        agent=agent_by_id(tx.conn, turn.agent_id, turn.agent_version),
    )
