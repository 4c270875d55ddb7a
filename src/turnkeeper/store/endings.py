"""The one transaction that ends a turn (contract 6): its status, its terminal event and its turnEnd together.

Answers for exactly one ending per turn. The row lock decides who is first; the table's indexes make a second one
impossible even if this module were wrong.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

from sqlalchemy import ColumnElement, select, update

from turnkeeper.events.catalogue import turn_ended
from turnkeeper.events.envelope import Event, NewEvent
from turnkeeper.store.budgets import close_account
from turnkeeper.store.charging import charge_rest
from turnkeeper.store.ledger import announce_front, assume_open_calls, usage_of
from turnkeeper.store.loading import load_session, promote
from turnkeeper.store.pauses import close_pause
from turnkeeper.store.rows import to_json
from turnkeeper.store.statements import load_row
from turnkeeper.store.steps import insert_turn_end, insert_unloads, window_is_open
from turnkeeper.store.tables import submissions, turns
from turnkeeper.store.tx import (
    QUEUE_TOPIC,
    Tx,
    number_events,
    refuse_terminal,
    require_one,
    store_events,
)
from turnkeeper.turns.activity import activity_news, doing_of
from turnkeeper.turns.endings import queue_expired
from turnkeeper.turns.lifecycle import Happening, transition
from turnkeeper.turns.model import CanceledBy, Ending, Fence, StopReason, Turn, TurnStatus, Usage
from turnkeeper.turns.results import SubmissionTally, render_terminal, unpublished
from turnkeeper.turns.usage import render_usage

_CANCELED_WHILE: Final = {
    TurnStatus.QUEUED: Happening.CANCELED_IN_QUEUE,
    TurnStatus.STARTING: Happening.CANCELED_WHILE_STARTING,
    TurnStatus.PAUSED: Happening.CANCELED_WHILE_PAUSED,
}
"""A turn that runs is always somebody's."""


def finish(
    tx: Tx, turn: Turn, ending: Ending, before: Sequence[NewEvent], fence: Fence | None, *, followed: bool = False
) -> Event:
    """Ends the turn: `before`, then the terminal event, then what its session does; then the next turn moves up.

    The session's row is locked. `fence` is the worker's; without one the turn must be nobody's. `followed` says that
    another turn is accepted in the same transaction. Raises `IllegalEnding`, `StaleFence`.
    """
    refuse_terminal(before)
    attempt = turn.attempt or None
    closing = [*before, *close_pause(tx, turn, before), *assume_open_calls(tx, turn.id, attempt)]
    charge_rest(tx, turn.id, ending.duration_ms)
    if ending.happening == Happening.BUDGET_GONE_AT_FRONT:
        closing += announce_front(tx, turn.id)
    usage = usage_of(tx.conn, turn.id, tool_calls=_tool_calls(tx, turn), sandbox_ms=ending.duration_ms)
    data = render_terminal(turn, ending, usage)
    row = transition(turn.status, Happening(ending.happening))
    terminal = turn_ended(
        event_type=str(row.event_type), turn_id=turn.id, source=ending.source, attempt=attempt, data=data
    )
    stored = number_events(tx, turn.session_id, [*closing, terminal, *_afterwards(tx, turn, followed=followed)])
    told = stored[len(closing)]
    _store_ending(tx, turn, ending, usage=usage, terminal=told, fence=fence)
    store_events(tx, stored)
    _publish_result(tx, turn, ending)
    close_account(tx, turn.id)
    ended_well = ending.status in {TurnStatus.COMPLETED, TurnStatus.CANCELED}
    insert_unloads(tx, turn, well=ended_well, in_window=ending.turn_outcome is not None)
    if ending.turn_outcome is not None:
        insert_turn_end(tx, turn.session_id, turn.id, ending.turn_outcome, told.id)
    promote(tx, turn.session_id)
    tx.topics.add(QUEUE_TOPIC)
    return told


def cancel_waiting(tx: Tx, turn: Turn, reason: StopReason, by: CanceledBy, *, followed: bool = False) -> Event:
    """Ends a turn that nobody holds (rows 2, 12 and 27), as `finish` does. The session's row is locked."""
    ending = Ending(
        happening=_CANCELED_WHILE[turn.status],
        status=TurnStatus.CANCELED,
        stop_reason=reason,
        source="platform",
        text="",
        result_json=None,
        result_error=unpublished(turn, tally_of(tx, turn.id)),
        duration_ms=turn.active_ms,
        turn_outcome="interrupted" if window_is_open(tx.conn, turn.session_id, turn.id) else None,
        canceled_by=by,
    )
    return finish(tx, turn, ending, (), None, followed=followed)


def expire_waiting(tx: Tx, turn: Turn) -> Event:
    """Ends a waiting turn that nobody holds and that did not start in time (row 3). The session's row is locked."""
    opened = window_is_open(tx.conn, turn.session_id, turn.id)
    return finish(tx, turn, queue_expired(turn, turn_started=opened), (), None)


def tally_of(tx: Tx, turn_id: str) -> SubmissionTally:
    """What a turn has submitted so far."""
    query = select(submissions.c.valid, submissions.c.value_json).where(submissions.c.turn_id == turn_id)
    rows = tx.conn.execute(query.order_by(submissions.c.submission)).all()
    valid = [value_json for was_valid, value_json in rows if was_valid]
    return SubmissionTally(len(rows), valid[-1] if valid else None)


def _afterwards(tx: Tx, turn: Turn, *, followed: bool) -> list[NewEvent]:
    session = load_session(tx.conn, turn.session_id)
    after = doing_of(session).without(turn)
    return activity_news(session, after.with_another() if followed else after)


def _store_ending(tx: Tx, turn: Turn, ending: Ending, *, usage: Usage, terminal: Event, fence: Fence | None) -> None:
    values: dict[str, object] = {
        "status": ending.status.value,
        "stop_reason": ending.stop_reason.value,
        "front_of": None,
        "owner": None,
        "beat_at": None,
        "text": ending.text,
        "result_json": ending.result_json,
        "result_error": ending.result_error,
        "error_json": None if ending.error is None else to_json(asdict(ending.error)),
        "usage_json": render_usage(usage),
        "canceled_by_json": None if ending.canceled_by is None else to_json(asdict(ending.canceled_by)),
        "ended_at": tx.now,
        "duration_ms": ending.duration_ms,
        "terminal_event_id": terminal.id,
        "terminal_data": terminal.data,
        "last_sequence": terminal.sequence,
    }
    query = update(turns).where(turns.c.id == turn.id, turns.c.terminal_event_id.is_(None), *_held_by(fence))
    require_one(tx.conn.execute(query.values(values)), turn.id)


def _held_by(fence: Fence | None) -> Iterable[ColumnElement[bool]]:
    if fence is None:
        return (turns.c.owner.is_(None),)
    return turns.c.owner == fence.owner, turns.c.fence == fence.number


def _publish_result(tx: Tx, turn: Turn, ending: Ending) -> None:
    """A submitted value that the ending itself carries was allowed with it."""
    if ending.result_json is None:
        return
    carried = (submissions.c.turn_id == turn.id, submissions.c.value_json == ending.result_json, submissions.c.valid)
    tx.conn.execute(update(submissions).where(*carried).values(published=True))


def _tool_calls(tx: Tx, turn: Turn) -> int:
    return load_row(tx.conn, turns, turn.id)["tool_calls"]
