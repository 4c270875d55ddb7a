"""Turns and sessions with what belongs to them: usage so far, place in the queue, who holds the session."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    Column,
    Connection,
    RowMapping,
    Select,
    Update,
    bindparam,
    case,
    func,
    literal_column,
    select,
    tuple_,
    update,
)

from turnkeeper.clock import epoch_ms
from turnkeeper.store.budget_tables import budgets
from turnkeeper.store.filters import of_sessions, of_turns
from turnkeeper.store.ledger import calls_of
from turnkeeper.store.metadata_terms import with_metadata
from turnkeeper.store.pages import load_page
from turnkeeper.store.rows import to_session, to_turn
from turnkeeper.store.tables import IS_ACTIVE, IS_QUEUED, events, sessions, turns
from turnkeeper.store.tx import Tx
from turnkeeper.turns.metadata import Described
from turnkeeper.turns.model import Session, Turn, TurnStatus
from turnkeeper.turns.ports import NotFound, Page, PageRequest, SessionFilter, TurnFilter
from turnkeeper.turns.usage import parse_usage, sum_usage


def _turns() -> Select[Any]:
    ahead = turns.alias("ahead")
    before = select(func.count()).where(
        ahead.c.session_id == turns.c.session_id,
        ahead.c.status == literal_column("'queued'"),
        tuple_(ahead.c.rank, ahead.c.seq) < tuple_(turns.c.rank, turns.c.seq),
    )
    return select(turns, case((IS_QUEUED, before.scalar_subquery())).label("queue_position"))


def _sessions() -> Select[Any]:
    active = select(turns.c.id).where(turns.c.front_of == sessions.c.id, IS_ACTIVE).scalar_subquery()
    depth = select(func.count()).where(turns.c.session_id == sessions.c.id, IS_QUEUED).scalar_subquery()
    held = select(turns.c.status).where(turns.c.front_of == sessions.c.id, IS_ACTIVE).scalar_subquery()
    oldest = select(func.min(events.c.sequence)).where(events.c.session_id == sessions.c.id).scalar_subquery()
    limits = select(budgets.c.limits_json).where(budgets.c.id == sessions.c.budget_id).scalar_subquery()
    return select(
        sessions,
        active.label("active_turn_id"),
        held.label("active_status"),
        depth.label("queue_depth"),
        limits.label("budget_json"),
        func.coalesce(oldest, sessions.c.last_sequence).label("oldest_sequence"),
    )


# Built once: what costs in a query of this length is putting it together.
_TURNS: Final = _turns()
_SESSIONS: Final = _sessions()
_ONE_TURN: Final = _TURNS.where(turns.c.id == bindparam("turn_key"))
_ONE_SESSION: Final = _SESSIONS.where(sessions.c.id == bindparam("session_key"))


def _promotion() -> Update:
    front = select(turns.c.id).where(turns.c.front_of == bindparam("session_key")).exists()
    waiting = select(turns.c.id).where(turns.c.session_id == bindparam("session_key"), IS_QUEUED)
    first = waiting.order_by(turns.c.rank, turns.c.seq).limit(1).scalar_subquery()
    moved: dict[str, object] = {"front_of": bindparam("session_key"), "front_at": bindparam("moved_at")}
    return update(turns).where(turns.c.id == first, ~front).values(moved)


_PROMOTION: Final = _promotion()


def load_turn(conn: Connection, turn_id: str, now: datetime) -> Turn:
    """One turn as it is. Raises `NotFound`."""
    row = conn.execute(_ONE_TURN, {"turn_key": turn_id}).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no turn {turn_id}")
    return _to_turns(conn, [row], now)[0]


def load_turns(conn: Connection, turn_ids: Sequence[str], now: datetime) -> list[Turn]:
    """Some turns as they are, by id."""
    rows = conn.execute(_TURNS.where(turns.c.id.in_(turn_ids)).order_by(turns.c.id)).mappings().all()
    return _to_turns(conn, rows, now)


def list_turns(
    conn: Connection, page: PageRequest, session_id: str | None, now: datetime, wanted: TurnFilter | None = None
) -> Page[Turn]:
    """A page of turns, of one session or of all."""
    query = _TURNS.where(*of_turns(wanted))
    if session_id is not None:
        query = query.where(turns.c.session_id == session_id)
    query, key = _with_metadata(query, turns.c.id, "turn", wanted)
    return load_page(conn, query, key, page, lambda rows: _to_turns(conn, rows, now))


def waiting_turns(conn: Connection, session_id: str, now: datetime) -> list[Turn]:
    """Open turns of a session that nobody holds, in their order."""
    query = _TURNS.where(turns.c.session_id == session_id, IS_QUEUED | IS_ACTIVE, turns.c.owner.is_(None))
    return _to_turns(conn, conn.execute(query.order_by(turns.c.rank, turns.c.seq)).mappings().all(), now)


def load_session(conn: Connection, session_id: str) -> Session:
    """One session as it is. Raises `NotFound`."""
    row = conn.execute(_ONE_SESSION, {"session_key": session_id}).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no session {session_id}")
    return to_session(row)


def list_sessions(
    conn: Connection, page: PageRequest, agent_id: str | None, wanted: SessionFilter | None = None
) -> Page[Session]:
    """A page of sessions, of one agent or of all."""
    query = _SESSIONS.where(*of_sessions(wanted))
    if agent_id is not None:
        query = query.where(sessions.c.agent_id == agent_id)
    query, key = _with_metadata(query, sessions.c.id, "session", wanted)
    return load_page(conn, query, key, page, lambda rows: [to_session(row) for row in rows])


def promote(tx: Tx, session_id: str) -> None:
    """Moves the first waiting turn to the front if the front is free. The session's row must be locked."""
    tx.conn.execute(_PROMOTION, {"session_key": session_id, "moved_at": tx.now})


def _with_metadata(
    query: Select[Any], key: Column[str], kind: Described, wanted: SessionFilter | TurnFilter | None
) -> tuple[Select[Any], Column[str]]:
    if wanted is None or not wanted.metadata:
        return query, key
    return with_metadata(query, key, kind, wanted.metadata, None if wanted.reach is None else wanted.reach.project_id)


def _to_turns(conn: Connection, rows: Sequence[RowMapping], now: datetime) -> list[Turn]:
    calls = calls_of(conn, [row["id"] for row in rows if row["usage_json"] is None and row["attempt"]])

    def convert(row: RowMapping) -> Turn:
        if row["usage_json"] is not None:
            return to_turn(row, parse_usage(row["usage_json"]))
        usage = sum_usage(calls[row["id"]], tool_calls=row["tool_calls"], sandbox_ms=running_ms(row, now))
        return to_turn(row, usage)

    return [convert(row) for row in rows]


def running_ms(row: RowMapping, now: datetime) -> int:
    """How long a turn has run so far, by the wall's clock since it went on last."""
    since = row["active_since"] if row["status"] == TurnStatus.RUNNING.value else None
    return row["active_ms"] + (0 if since is None else max(0, epoch_ms(now) - epoch_ms(since)))
