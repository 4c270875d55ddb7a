"""What the turns behind a session's front wait for."""

from typing import Final

from sqlalchemy import Connection, bindparam, select

from turnkeeper.store.pause_tables import IS_PENDING_APPROVAL, approvals
from turnkeeper.store.tables import turns
from turnkeeper.turns.model import BlockedBy, TurnStatus
from turnkeeper.turns.queueing import blocked_by

# Built once: every turn that is accepted asks this.
_FRONT: Final = select(turns.c.id, turns.c.status).where(turns.c.front_of == bindparam("session"))


def blocker_of(conn: Connection, session_id: str) -> BlockedBy | None:
    """The turn at the front, with the questions that it waits for itself; None where there is no front."""
    front = conn.execute(_FRONT, {"session": session_id}).one_or_none()
    if front is None:
        return None
    turn_id, status = front
    asked = select(approvals.c.id).where(approvals.c.turn_id == turn_id, IS_PENDING_APPROVAL)
    open_questions = tuple(conn.execute(asked.order_by(approvals.c.id)).scalars()) if status == "paused" else ()
    return blocked_by(turn_id, TurnStatus(status), open_questions)
