"""The end of a session's content (contract 2.2 and 14): asked for, due, and carried out.

INVARIANT: what is left of an erased session is ids, times, states and usage; no text that an app, a model or a tool
wrote, and no Idempotency-Key that could be used again for something else.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from sqlalchemy import BigInteger, ColumnElement, Connection, Table, cast, delete, select, type_coerce, update

from turnkeeper.clock import epoch_ms
from turnkeeper.events.administration import session_deleted
from turnkeeper.events.catalogue import session_updated
from turnkeeper.store.files import NO_FILES, erase_artifacts
from turnkeeper.store.filters import at_rest
from turnkeeper.store.loading import load_session
from turnkeeper.store.metadata_terms import erase_terms, replace_terms
from turnkeeper.store.pause_tables import approval_rules, approvals, pauses
from turnkeeper.store.sessions import close_session
from turnkeeper.store.tables import IS_DOOMED, IS_KEPT, events, sessions, steps, submissions, turns
from turnkeeper.store.tx import Tx, append_events, lock_session
from turnkeeper.store.webhook_tables import webhook_attempts, webhook_deliveries
from turnkeeper.store.webhooks import append_project_event
from turnkeeper.turns.model import CanceledBy, Session
from turnkeeper.turns.ports import deletion_topic
from turnkeeper.turns.retention import RETENTION_TOPIC, SessionChange

EVENTS_AT_ONCE: Final = 5_000
DAY_MS: Final = 86_400_000

_ERASED_TURN: Final[dict[str, object]] = {
    "input_text": "",
    "input_json": '""',
    "input_files_json": NO_FILES,
    "output_schema_json": None,
    "metadata_json": "{}",
    "text": None,
    "result_json": None,
    "error_json": None,
    "canceled_by_json": None,
}
_OF_SESSION: Final[tuple[Table, ...]] = (approval_rules, pauses, approvals)


def change_session(tx: Tx, session_id: str, change: SessionChange) -> Session:
    """The session, with its `session.updated` where something changed. Raises `NotFound`."""
    row = lock_session(tx, session_id)
    given = {"title": change.title, "metadata_json": change.metadata_json, "retention_days": change.retention_days}
    values = {name: value for name, value in given.items() if value is not None and value != row[name]}
    if values:
        tx.conn.execute(update(sessions).where(sessions.c.id == session_id).values(values))
        if "metadata_json" in values:
            replace_terms(tx, "session", session_id, row["project_id"], str(values["metadata_json"]))
        changed = [name.removesuffix("_json") for name in values]
        append_events(tx, session_id, [session_updated(session_id=session_id, changed=changed)])
    return load_session(tx.conn, session_id)


def delete_session(tx: Tx, session_id: str, *, by: CanceledBy) -> Session:
    """The session on its way out; deleting it once more changes nothing. Raises `NotFound`."""
    row = lock_session(tx, session_id)
    if row["delete_requested_at"] is None:
        close_session(tx, session_id, mode="cancel", by=by)
        asked = update(sessions).where(sessions.c.id == session_id).values(delete_requested_at=tx.now)
        tx.conn.execute(asked)
        tx.topics.update({deletion_topic(session_id), RETENTION_TOPIC})
    return load_session(tx.conn, session_id)


def delete_if_expired(tx: Tx, session_id: str) -> None:
    """Deletes the session if its time is over now."""
    lock_session(tx, session_id)
    if tx.conn.execute(select(sessions.c.id).where(sessions.c.id == session_id, *_over(tx.now))).one_or_none():
        delete_session(tx, session_id, by=CanceledBy("system", None, "retention"))


def expired(conn: Connection, limit: int, after: str, now: datetime) -> tuple[list[str], str | None]:
    """The sessions among the next `limit` whose time is over, and the last one looked at if there may be more."""
    kept = select(sessions.c.id).where(IS_KEPT, sessions.c.id > after).order_by(sessions.c.id).limit(limit)
    looked_at = conn.execute(kept).scalars().all()
    over = select(sessions.c.id).where(sessions.c.id.in_(looked_at), *_over(now)).order_by(sessions.c.id)
    return list(conn.execute(over).scalars()), looked_at[-1] if len(looked_at) == limit else None


def erasable(conn: Connection, limit: int) -> tuple[str, ...]:
    """Sessions that were deleted and have closed since."""
    query = select(sessions.c.id).where(IS_DOOMED, sessions.c.status == "closed").order_by(sessions.c.id)
    return tuple(conn.execute(query.limit(limit)).scalars())


def erase(tx: Tx, session_id: str) -> bool:
    """Erases a bounded part; whether nothing is left. The last part tells with `session.deleted`."""
    row = lock_session(tx, session_id)
    if row["erased_at"] is not None:
        return True
    # Before the events: nothing may be left to deliver whose content is gone.
    owed = select(webhook_deliveries.c.id).where(webhook_deliveries.c.session_id == session_id)
    tx.conn.execute(delete(webhook_attempts).where(webhook_attempts.c.delivery_id.in_(owed)))
    tx.conn.execute(delete(webhook_deliveries).where(webhook_deliveries.c.session_id == session_id))
    if _erase_events(tx, session_id):
        return False
    erase_terms(tx, session_id)
    of_turns = select(turns.c.id).where(turns.c.session_id == session_id)
    tx.conn.execute(delete(submissions).where(submissions.c.turn_id.in_(of_turns)))
    for table in _OF_SESSION:
        tx.conn.execute(delete(table).where(table.c.session_id == session_id))
    tx.conn.execute(update(steps).where(steps.c.session_id == session_id).values(payload_json=None, reasoning=None))
    of_session = update(turns).where(turns.c.session_id == session_id)
    tx.conn.execute(of_session.values(_ERASED_TURN))
    tx.conn.execute(of_session.where(turns.c.terminal_data.is_not(None)).values(terminal_data="{}"))
    erase_artifacts(tx, session_id, row["project_id"])
    gone = {"title": None, "metadata_json": "{}", "erased_at": tx.now}
    tx.conn.execute(update(sessions).where(sessions.c.id == session_id).values(gone))
    append_project_event(tx, session_deleted(session_id=session_id), project_id=row["project_id"])
    return True


def without_workspace(conn: Connection, session_ids: Collection[str]) -> frozenset[str]:
    """Those of the sessions that were erased, or were opened for one turn and are closed."""
    lone = sessions.c.ephemeral & (sessions.c.status == "closed")
    query = select(sessions.c.id).where(sessions.c.id.in_(session_ids), sessions.c.erased_at.is_not(None) | lone)
    return frozenset(conn.execute(query).scalars())


def _erase_events(tx: Tx, session_id: str) -> bool:
    of_session = events.c.session_id == session_id
    first = select(events.c.sequence).where(of_session).order_by(events.c.sequence).limit(1)
    lowest = tx.conn.execute(first).scalar_one_or_none()
    if lowest is None:
        return False
    part = delete(events).where(of_session, events.c.sequence < lowest + EVENTS_AT_ONCE)
    tx.conn.execute(part)
    return True


def _over(now: datetime) -> tuple[ColumnElement[bool], ...]:
    # Times are stored as milliseconds; the type would make a time of the difference.
    age_ms = epoch_ms(now) - type_coerce(sessions.c.last_active_at, BigInteger)
    return (IS_KEPT, age_ms >= cast(sessions.c.retention_days, BigInteger) * DAY_MS, *at_rest())
