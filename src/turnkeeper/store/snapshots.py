"""A session with its turns and questions, all of one moment.

Answers for one transaction: what is read here belongs together, so that the events after `last_sequence` are exactly
what the snapshot does not show.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, func, select

from turnkeeper.store.blocking import blocker_of
from turnkeeper.store.loading import load_session, load_turns
from turnkeeper.store.pause_rows import to_approval
from turnkeeper.store.pause_tables import IS_PENDING_APPROVAL, approvals
from turnkeeper.store.pauses import open_pause
from turnkeeper.store.tables import IS_QUEUED, submissions, turns
from turnkeeper.store.usage import usage_of_sessions
from turnkeeper.turns.approvals import Approval
from turnkeeper.turns.model import BlockedBy, Turn, TurnStatus
from turnkeeper.turns.snapshots import (
    MAX_OPEN_APPROVALS,
    MAX_QUEUED_TURNS,
    MAX_RECENT_TURNS,
    SessionSnapshot,
    TurnView,
)


def session_snapshot(conn: Connection, session_id: str, now: datetime) -> SessionSnapshot:
    """The session as it is. Raises `NotFound`."""
    session = load_session(conn, session_id)
    blocker = blocker_of(conn, session_id)
    of_session = select(turns.c.id).where(turns.c.session_id == session_id)
    waiting = of_session.where(IS_QUEUED).order_by(turns.c.rank, turns.c.seq).limit(MAX_QUEUED_TURNS)
    # Not by status: an index has that, and SQLite would read all of the ended turns by it to sort them.
    ended = of_session.where(turns.c.terminal_event_id.is_not(None))
    active = () if session.active_turn_id is None else (session.active_turn_id,)
    return SessionSnapshot(
        session=session,
        usage=usage_of_sessions(conn, [session_id])[session_id],
        active=next(iter(_views(conn, active, blocker, now)), None),
        queued=_views(conn, _ids(conn, waiting), blocker, now),
        recent=_views(conn, _ids(conn, ended.order_by(turns.c.id.desc()).limit(MAX_RECENT_TURNS)), None, now),
        approvals=_open_approvals(conn, session_id, now),
    )


def _ids(conn: Connection, query: Select[Any]) -> Sequence[str]:
    return conn.execute(query).scalars().all()


def _views(conn: Connection, turn_ids: Sequence[str], blocker: BlockedBy | None, now: datetime) -> tuple[TurnView, ...]:
    by_id = {turn.id: turn for turn in load_turns(conn, turn_ids, now)}
    refused = _refused(conn, [turn.id for turn in by_id.values() if turn.output_schema_json is not None])
    return tuple(_view(conn, by_id[turn_id], blocker, refused.get(turn_id, 0)) for turn_id in turn_ids)


def _view(conn: Connection, turn: Turn, blocker: BlockedBy | None, refused: int) -> TurnView:
    waits = turn.status is TurnStatus.QUEUED and blocker is not None and blocker.turn_id != turn.id
    pause = open_pause(conn, turn.id) if turn.status is TurnStatus.PAUSED else None
    return TurnView(turn, blocker if waits else None, pause, refused)


def _refused(conn: Connection, turn_ids: Sequence[str]) -> dict[str, int]:
    if not turn_ids:
        return {}
    query = select(submissions.c.turn_id, func.count()).where(
        submissions.c.turn_id.in_(turn_ids), submissions.c.valid.is_(False)
    )
    return {row[0]: row[1] for row in conn.execute(query.group_by(submissions.c.turn_id))}


def _open_approvals(conn: Connection, session_id: str, now: datetime) -> tuple[Approval, ...]:
    query = select(approvals).where(approvals.c.session_id == session_id, IS_PENDING_APPROVAL)
    rows = conn.execute(query.order_by(approvals.c.id).limit(MAX_OPEN_APPROVALS)).mappings()
    return tuple(approval for approval in map(to_approval, rows) if approval.status_at(now) == "pending")
