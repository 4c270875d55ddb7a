"""A lost attempt that is tried again (contract 6, row 21), as one transaction.

Answers for the window being closed with the attempt, and for nobody holding the turn until its delay is over.
"""

from collections.abc import Sequence
from datetime import timedelta

from turnkeeper.events.envelope import NewEvent
from turnkeeper.store.charging import charge_rest
from turnkeeper.store.leases import fenced_turn, require_event
from turnkeeper.store.ledger import assume_open_calls
from turnkeeper.store.loading import load_turn
from turnkeeper.store.steps import insert_step, insert_turn_end, insert_unloads
from turnkeeper.store.tx import QUEUE_TOPIC, Tx, lock_session, write_turn
from turnkeeper.turns.lifecycle import Happening, IllegalTransition, transition
from turnkeeper.turns.model import Fence, NewStep, Turn


def retry(
    tx: Tx,
    fence: Fence,
    *,
    delay_ms: int,
    active_ms: int,
    events: Sequence[NewEvent],
    steps: Sequence[NewStep] = (),
) -> Turn:
    """Row 21; `steps` are sent before the turnEnd. Raises `StaleFence`, `IllegalTransition` when no attempt is left."""
    lock_session(tx, fence.session_id)
    turn = fenced_turn(tx, fence)
    row = transition(turn.status, Happening.ATTEMPT_LOST)
    if turn.attempt >= turn.max_attempts:
        raise IllegalTransition(f"{turn.id} has had {turn.attempt} of {turn.max_attempts} attempts")
    require_event(row, events)
    # Who was asked to stop meanwhile need not wait for the attempt that will not be.
    due = tx.now if turn.cancel_mode is not None else tx.now + timedelta(milliseconds=delay_ms)
    waiting: dict[str, object] = {
        "status": row.next.value,
        "owner": None,
        "beat_at": None,
        "tries": 0,
        "active_ms": active_ms,
        "active_since": None,
        "run_after": due,
        "front_at": due,
    }
    charge_rest(tx, turn.id, active_ms)
    stored = write_turn(tx, fence, waiting, [*assume_open_calls(tx, turn.id, turn.attempt), *events])
    for step in steps:
        insert_step(tx, turn.session_id, step)
    told = next(event for event in stored if event.type == row.event_type)
    insert_unloads(tx, turn, well=False, in_window=True)
    insert_turn_end(tx, turn.session_id, turn.id, "error", told.id)
    tx.topics.add(QUEUE_TOPIC)
    return load_turn(tx.conn, turn.id, tx.now)
