"""One transaction: its time, its ids, whom to wake after it; and the three things every body is made of.

`lock_session` takes the row lock that orders everything in a session. `append_events` numbers events under it.
`write_turn` changes a turn for whoever holds its fence, and for nobody else.

INVARIANT: the session's row is locked before the turn's, in every body, so that no two bodies wait for each other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Final

from sqlalchemy import Connection, RowMapping, bindparam, select, update
from sqlalchemy.engine import CursorResult
from sqlalchemy.sql.dml import ReturningUpdate

from turnkeeper.errors import LocalProtocolError
from turnkeeper.events.catalogue import TERMINAL_TYPES
from turnkeeper.events.envelope import Event, NewEvent
from turnkeeper.ids import IdSource
from turnkeeper.store.artifact_rows import keep_artifacts
from turnkeeper.store.fanout import WEBHOOK_TOPIC, owe_deliveries, owed_of
from turnkeeper.store.statements import add, change
from turnkeeper.store.tables import events, sessions, turns
from turnkeeper.turns.files import MAX_PROJECT_BYTES
from turnkeeper.turns.idempotency import IN_PROGRESS_WAIT_MS
from turnkeeper.turns.model import Fence
from turnkeeper.turns.pausing import DEFAULT_PAUSE_EXPIRY_MS
from turnkeeper.turns.ports import NotFound, StaleFence
from turnkeeper.turns.queueing import MAX_KEY_DEPTH, MAX_QUEUE_DEPTH

QUEUE_TOPIC: Final = "queue"


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """What the store needs to know of the settings."""

    queue_depth: int = MAX_QUEUE_DEPTH
    key_queue_depth: int = MAX_KEY_DEPTH
    cancel_grace_ms: int = 10_000
    pause_expiry_ms: int = DEFAULT_PAUSE_EXPIRY_MS
    retention_days: int = 30
    project_bytes: int = MAX_PROJECT_BYTES
    idempotency_wait_ms: int = IN_PROGRESS_WAIT_MS


@dataclass(frozen=True, slots=True)
class Tx:
    """A transaction that writes. Once it is committed `topics` are told, and whoever observes hears of `written`."""

    conn: Connection
    now: datetime
    ids: IdSource
    limits: StoreLimits
    lock_name: Callable[[Connection, str, int], bool]
    topics: set[str] = field(default_factory=set[str])
    written: list[Event] = field(default_factory=list[Event])


_LOCKED_SESSION: Final = select(sessions).where(sessions.c.id == bindparam("session_id")).with_for_update()


def lock_session(tx: Tx, session_id: str) -> RowMapping:
    """The session's row, locked until the end of the transaction. Raises `NotFound`."""
    row = tx.conn.execute(_LOCKED_SESSION, {"session_id": session_id}).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no session {session_id}")
    return row


_LOCKED_IF_FREE: Final = (
    select(sessions.c.id).where(sessions.c.id == bindparam("session_id")).with_for_update(skip_locked=True)
)


def lock_session_if_free(tx: Tx, session_id: str) -> bool:
    """Locks the session's row unless another transaction has it; whether it did."""
    return tx.conn.execute(_LOCKED_IF_FREE, {"session_id": session_id}).one_or_none() is not None


def number_events(tx: Tx, session_id: str, new: Sequence[NewEvent], **also: object) -> tuple[Event, ...]:
    """The events with the session's next numbers; `store_events` must follow in the same transaction.

    An artifact's row is written here, for its event is what it is.

    `also` are other columns of the session's row that change with them.
    """
    if not new:
        return ()
    last, project_id = tx.conn.execute(
        _numbering(tuple(also)), {"session_id": session_id, "count": len(new), "last_active_at": tx.now, **also}
    ).one()
    keep_artifacts(tx.conn, tx.now, new, project_id=project_id, session_id=session_id)
    numbered = enumerate(new, start=last - len(new) + 1)
    return tuple(_stored(tx, project_id, session_id, event, sequence) for sequence, event in numbered)


@cache
def _numbering(also: tuple[str, ...]) -> ReturningUpdate[int, str]:
    changed: dict[str, object] = {
        "last_sequence": sessions.c.last_sequence + bindparam("count"),
        "last_active_at": bindparam("last_active_at"),
        **{name: bindparam(name) for name in also},
    }
    by_id = update(sessions).where(sessions.c.id == bindparam("session_id"))
    return by_id.values(changed).returning(sessions.c.last_sequence, sessions.c.project_id)


def store_events(tx: Tx, stored: Iterable[Event]) -> None:
    """Inserts numbered events with the webhook deliveries they owe, and remembers whom to tell."""
    new = tuple(stored)
    if not new:
        return
    tx.written.extend(new)
    rows = [_row(event) for event in new]
    add(tx.conn, events, rows)
    if owe_deliveries(tx.conn, tx.ids, tx.now, new[0].project_id, [owed_of(event) for event in new]):
        tx.topics.add(WEBHOOK_TOPIC)
    tx.topics.update(str(row["session_id"]) for row in rows)


def append_events(tx: Tx, session_id: str, new: Sequence[NewEvent], **session: object) -> tuple[Event, ...]:
    """Numbers and stores events that change no turn; `session` as in `write_turn`."""
    refuse_terminal(new)
    stored = number_events(tx, session_id, new, **session)
    store_events(tx, stored)
    return stored


def write_turn(
    tx: Tx,
    fence: Fence,
    values: Mapping[str, object] | None = None,
    new: Sequence[NewEvent] = (),
    **session: object,
) -> tuple[Event, ...]:
    """Changes the turn and appends its events if `fence` is current. Raises `StaleFence`; then nothing was written.

    `session` are columns of the session's row that change with the events, of which there must be one then.
    """
    refuse_terminal(new)
    stored = number_events(tx, fence.session_id, new, **session)
    change_fenced(tx, fence, {**(values or {}), **last_sequence(stored)})
    store_events(tx, stored)
    return stored


def change_fenced(tx: Tx, fence: Fence, values: Mapping[str, object]) -> None:
    """Changes columns of the turn where turn, owner and fence number are the ones given. Raises `StaleFence`."""
    held = {"id": fence.turn_id, "session_id": fence.session_id, "owner": fence.owner, "fence": fence.number}
    require_one(change(tx.conn, turns, held, values or {"owner": fence.owner}), fence.turn_id)


def require_one(result: CursorResult[object], turn_id: str) -> None:
    """Raises `StaleFence` unless exactly one row was changed."""
    if result.rowcount != 1:
        raise StaleFence(f"{turn_id} is no longer this owner's")


def last_sequence(stored: Sequence[Event]) -> dict[str, int]:
    """The column change that follows from a turn's new events; those of its session are none of its own."""
    own = next((event.sequence for event in reversed(stored) if event.turn_id is not None), None)
    return {} if own is None else {"last_sequence": own}


def refuse_terminal(new: Iterable[NewEvent]) -> None:
    """Raises `LocalProtocolError` for a terminal event outside the transaction that ends the turn."""
    for event in new:
        if event.type in TERMINAL_TYPES:
            raise LocalProtocolError(f"{event.type} is written by the transaction that ends the turn")


def _stored(tx: Tx, project_id: str, session_id: str, event: NewEvent, sequence: int) -> Event:
    return Event(
        id=tx.ids.new("evt"),
        type=event.type,
        created_at=tx.now,
        source=event.source,
        project_id=project_id,
        session_id=session_id,
        turn_id=event.turn_id,
        sequence=sequence,
        attempt=event.attempt,
        data=event.data,
        thread_id=event.thread_id,
    )


def _row(event: Event) -> dict[str, object]:
    return {
        "session_id": event.session_id,
        "sequence": event.sequence,
        "id": event.id,
        "project_id": event.project_id,
        "type": event.type,
        "source": event.source,
        "turn_id": event.turn_id,
        "attempt": event.attempt,
        "created_at": event.created_at,
        "data": event.data,
        "thread_id": event.thread_id,
    }
