"""An operator's word on one turn (contract 2.12): taken from its worker, put back, or ended; each is one transaction.

Answers for the worker losing the turn with the commit: its fence is of the past, so it can neither append nor end, and
it ends its boxes as soon as it sees so. Nobody begins in the session for `HANDOVER_MS` meanwhile.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import RowMapping, select, update

from turnkeeper.events.envelope import Event, NewEvent
from turnkeeper.store import attempts
from turnkeeper.store.endings import finish, tally_of
from turnkeeper.store.events import events_after
from turnkeeper.store.leases import take
from turnkeeper.store.loading import load_turn, running_ms
from turnkeeper.store.pauses import park
from turnkeeper.store.rows import to_fence
from turnkeeper.store.statements import find
from turnkeeper.store.steps import window_is_open
from turnkeeper.store.tables import turns
from turnkeeper.store.tx import QUEUE_TOPIC, Tx, lock_session
from turnkeeper.turns.attempts import retry_delay_ms, retrying
from turnkeeper.turns.endings import NEVER_RAN, Ran, failed_by_operator
from turnkeeper.turns.left_open import CALLS, STARTS, closed_calls, lost_box
from turnkeeper.turns.lifecycle import Happening, transition
from turnkeeper.turns.model import Fence, Turn, TurnStatus
from turnkeeper.turns.operations import HANDOVER_MS, OPERATOR, AttemptsUsed, RequeueEffect
from turnkeeper.turns.ports import NotFound

EVENT_PAGE = 500


def requeue_turn(tx: Tx, turn_id: str) -> tuple[Turn, RequeueEffect]:
    """Raises as `OperatorStore.requeue_turn` does."""
    row = _locked(tx, turn_id)
    turn = load_turn(tx.conn, turn_id, tx.now)
    # What nothing can happen to any more is not put back either (row 29).
    transition(turn.status, Happening.INTERNAL_FAULT)
    if turn.status is TurnStatus.RUNNING:
        return _retried(tx, turn, row), "retried"
    if row["owner"] is None:
        return _made_due(tx, turn), "unchanged"
    fence = _taken(tx, turn)
    if turn.status is TurnStatus.PAUSED:
        park(tx, fence, ())
    else:
        given_back = update(turns).where(turns.c.id == turn.id).values(owner=None, beat_at=None)
        tx.conn.execute(given_back)
    _hand_over(tx, turn.session_id)
    return load_turn(tx.conn, turn_id, tx.now), "requeued"


def fail_turn(tx: Tx, turn_id: str, reason: str | None) -> Turn:
    """Raises as `OperatorStore.fail_turn` does."""
    row = _locked(tx, turn_id)
    turn = load_turn(tx.conn, turn_id, tx.now)
    transition(turn.status, Happening.INTERNAL_FAULT)
    ran = Ran(running_ms(row, tx.now), tally_of(tx, turn_id)) if turn.attempt else NEVER_RAN
    # INVARIANT of the lifecycle: a running turn has an open window.
    opened = turn.status is TurnStatus.RUNNING or window_is_open(tx.conn, turn.session_id, turn.id)
    ending = failed_by_operator(turn, ran, reason, turn_started=opened)
    held = row["owner"] is not None
    fence = _taken(tx, turn) if held else None
    finish(tx, turn, ending, _left_open(tx, turn, row["beat_at"]), fence)
    if held:
        _hand_over(tx, turn.session_id)
    return load_turn(tx.conn, turn_id, tx.now)


def _locked(tx: Tx, turn_id: str) -> RowMapping:
    known = find(tx.conn, turns, id=turn_id)
    if known is None:
        raise NotFound(f"there is no turn {turn_id}")
    lock_session(tx, known["session_id"])
    return tx.conn.execute(select(turns).where(turns.c.id == turn_id)).mappings().one()


def _retried(tx: Tx, turn: Turn, row: RowMapping) -> Turn:
    """Row 21, because an operator says that the attempt is lost."""
    if turn.attempt >= turn.max_attempts:
        raise AttemptsUsed(
            f"{turn.id} runs its attempt {turn.attempt} of {turn.max_attempts}",
            detail={"turn_id": turn.id, "attempt": turn.attempt, "max_attempts": turn.max_attempts},
            hint="Fail or cancel it, and post it again.",
        )
    fence = _taken(tx, turn)
    events = [*_left_open(tx, turn, row["beat_at"]), retrying(turn)]
    delay_ms = max(retry_delay_ms(turn.attempt), HANDOVER_MS)
    return attempts.retry(tx, fence, delay_ms=delay_ms, active_ms=running_ms(row, tx.now), events=events)


def _taken(tx: Tx, turn: Turn) -> Fence:
    """The turn in the operator's hand, for the rest of the transaction."""
    row = take(tx, OPERATOR, turns.c.id == turn.id, turns.c.fence == turn.fence)
    if row is None:
        raise NotFound(f"there is no turn {turn.id}")
    tx.topics.add(turn.session_id)
    return to_fence(row)


def _hand_over(tx: Tx, session_id: str) -> None:
    due = tx.now + timedelta(milliseconds=HANDOVER_MS)
    front = update(turns).where(turns.c.front_of == session_id, turns.c.owner.is_(None))
    tx.conn.execute(front.values(run_after=due, front_at=due))
    tx.topics.add(QUEUE_TOPIC)


def _made_due(tx: Tx, turn: Turn) -> Turn:
    """A turn that waits for its next attempt need not wait any longer."""
    tx.conn.execute(update(turns).where(turns.c.id == turn.id).values(run_after=None))
    tx.topics.add(QUEUE_TOPIC)
    return load_turn(tx.conn, turn.id, tx.now)


def _left_open(tx: Tx, turn: Turn, last_beat_at: datetime | None) -> list[NewEvent]:
    if turn.status is not TurnStatus.RUNNING:
        return []
    lost = lost_box(turn, _events(tx, turn, STARTS), "killed", last_beat_at)
    return [*closed_calls(turn, _events(tx, turn, CALLS)), *lost]


def _events(tx: Tx, turn: Turn, types: Sequence[str]) -> list[Event]:
    found: list[Event] = []
    after = turn.first_sequence - 1
    while True:
        page = events_after(tx.conn, turn.session_id, after=after, limit=EVENT_PAGE, types=types, turn_id=turn.id)
        found.extend(page)
        if len(page) < EVENT_PAGE:
            return found
        after = page[-1].sequence
