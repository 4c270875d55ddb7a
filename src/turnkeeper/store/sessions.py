"""Sessions: opened, closing, closed, and what the Guardian knows of them."""

from dataclasses import asdict
from typing import Literal

from sqlalchemy import ColumnElement, Connection, insert, select, update

from turnkeeper.errors import LocalProtocolError
from turnkeeper.events.catalogue import session_closed, session_created
from turnkeeper.store.agents import agent_by_id, agent_of_project
from turnkeeper.store.budgets import open_account
from turnkeeper.store.endings import cancel_waiting
from turnkeeper.store.loading import load_session, load_turns, waiting_turns
from turnkeeper.store.metadata_terms import keep_terms
from turnkeeper.store.price_checks import require_price_of
from turnkeeper.store.rows import to_json
from turnkeeper.store.steps import insert_step
from turnkeeper.store.tables import IS_CLOSING, IS_PENDING, IS_QUEUED, sessions, steps, turns
from turnkeeper.store.turns import ask_to_stop
from turnkeeper.store.tx import QUEUE_TOPIC, Tx, append_events, lock_session
from turnkeeper.turns.budget_accounts import Account
from turnkeeper.turns.model import (
    Budget,
    CanceledBy,
    NewStep,
    Session,
    SessionReason,
    StopReason,
)
from turnkeeper.turns.ports import AgentArchived, NewSession


def create_session(tx: Tx, new: NewSession) -> Session:
    """The session and its `session.created`. Raises `NotFound` for the agent, `PriceUnknown`."""
    agent = agent_of_project(tx.conn, new.agent_id, new.project_id)
    if agent.archived_at is not None:
        raise AgentArchived(f"{agent.id} was archived", hint="Open the session with another agent.")
    if new.agent_version is not None:
        agent = agent_by_id(tx.conn, agent.id, new.agent_version)
    session_id = tx.ids.new("ses")
    account = _open_budget(tx, session_id, new.budget, new.project_id)
    values: dict[str, object] = {
        "id": session_id,
        "project_id": new.project_id,
        "agent_id": agent.id,
        "agent_version": agent.version,
        "status": "open",
        "title": new.title,
        "metadata_json": new.metadata_json,
        "budget_id": None if account is None else account.id,
        "acs_state": "new",
        "ephemeral": new.ephemeral,
        "network_json": None if new.network is None else to_json(asdict(new.network)),
        "secrets_json": to_json([asdict(ref) for ref in new.secrets]),
        "retention_days": new.retention_days or tx.limits.retention_days or None,
        "created_at": tx.now,
        "last_active_at": tx.now,
    }
    tx.conn.execute(insert(sessions), values)
    if account is not None:
        require_price_of(tx, account)
    keep_terms(tx, "session", session_id, new.project_id, new.metadata_json)
    created = session_created(
        session_id=session_id,
        agent_id=agent.id,
        agent_version=agent.version,
        metadata_json=new.metadata_json,
        ephemeral=new.ephemeral,
    )
    append_events(tx, session_id, [created])
    return load_session(tx.conn, session_id)


def close_session(tx: Tx, session_id: str, *, mode: Literal["drain", "cancel"], by: CanceledBy) -> Session:
    """No more turns; with `cancel` none of those there are either. Raises `NotFound`."""
    row = lock_session(tx, session_id)
    if row["status"] == "open":
        tx.conn.execute(update(sessions).where(sessions.c.id == session_id).values(status="closing"))
    if mode == "cancel" and row["status"] != "closed":
        for turn in waiting_turns(tx.conn, session_id, tx.now):
            cancel_waiting(tx, turn, StopReason.SESSION_CLOSED, by)
        _ask_owned_to_stop(tx, session_id, by)
    tx.topics.update({session_id, QUEUE_TOPIC})
    return load_session(tx.conn, session_id)


def sessions_to_end(conn: Connection, limit: int) -> tuple[str, ...]:
    """Closing sessions with nothing queued, active or unsent."""
    query = select(sessions.c.id).where(IS_CLOSING, *_at_rest()).order_by(sessions.c.id).limit(limit)
    return tuple(conn.execute(query).scalars())


def close_ended(tx: Tx, session_id: str, reason: SessionReason, end_step: NewStep | None) -> None:
    """`session.closed` and the sessionEnd step, once; closing a closed session changes nothing.

    Raises `NotFound`, and `LocalProtocolError` for a session that still has turns or unsent steps.
    """
    row = lock_session(tx, session_id)
    if row["status"] == "closed":
        return
    at_rest = select(sessions.c.id).where(sessions.c.id == session_id, IS_CLOSING, *_at_rest())
    if tx.conn.execute(at_rest).one_or_none() is None:
        raise LocalProtocolError(f"{session_id} is not closing, or has turns or unsent steps")
    changes: dict[str, object] = {"status": "closed", "closed_at": tx.now}
    if end_step is not None:
        insert_step(tx, session_id, end_step)
        changes["acs_state"] = "ended"
    tx.conn.execute(update(sessions).where(sessions.c.id == session_id).values(changes))
    append_events(tx, session_id, [session_closed(session_id=session_id, reason=reason)])
    tx.topics.add(QUEUE_TOPIC)


def set_acs_state(tx: Tx, session_id: str, state: Literal["started", "refused"]) -> None:
    """What the Guardian said to sessionStart. A session it refused takes no more turns (row 4a). Raises `NotFound`."""
    row = lock_session(tx, session_id)
    changes: dict[str, object] = {"acs_state": state}
    if state == "refused" and row["status"] == "open":
        changes["status"] = "closing"
    tx.conn.execute(update(sessions).where(sessions.c.id == session_id).values(changes))
    tx.topics.update({session_id, QUEUE_TOPIC})


def _open_budget(tx: Tx, session_id: str, limits: Budget | None, project_id: str) -> Account | None:
    return None if limits is None else open_account(tx, "session", session_id, limits, project_id=project_id)


def _ask_owned_to_stop(tx: Tx, session_id: str, by: CanceledBy) -> None:
    owned = select(turns.c.id).where(turns.c.front_of == session_id, turns.c.owner.is_not(None))
    for turn in load_turns(tx.conn, tx.conn.execute(owned).scalars().all(), tx.now):
        ask_to_stop(tx, turn, StopReason.SESSION_CLOSED, "graceful", by)


def _at_rest() -> tuple[ColumnElement[bool], ...]:
    front = select(turns.c.id).where(turns.c.front_of == sessions.c.id).exists()
    waiting = select(turns.c.id).where(turns.c.session_id == sessions.c.id, IS_QUEUED).exists()
    unsent = select(steps.c.ordinal).where(steps.c.session_id == sessions.c.id, IS_PENDING).exists()
    return ~front, ~waiting, ~unsent
