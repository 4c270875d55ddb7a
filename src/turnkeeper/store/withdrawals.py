"""Questions that the Guardian may still have open, and that nobody waits for any more.

Answers for a row in the very transaction that stops the wait, so that no crash leaves a question behind that an
operator would be asked for nothing. Telling the Guardian is `turns.withdrawals`.
"""

from typing import Final

from sqlalchemy import Connection, delete, select

from turnkeeper.store.pause_tables import withdrawals
from turnkeeper.store.statements import add, find
from turnkeeper.store.tx import Tx
from turnkeeper.turns.approvals import Approval, AskedStep
from turnkeeper.turns.model import StepAnswer

_ASKS: Final = frozenset({"ask", "defer"})


def withdraw_question(tx: Tx, approval: Approval) -> None:
    """Nobody waits for the answer to this question; one of the agent's own permissions is no Guardian's."""
    if approval.origin == "guardian" and approval.call.request_id is not None:
        _withdraw(tx, approval.session_id, approval.call.request_id)


def withdraw_unheard(tx: Tx, session_id: str, request_id: str, answer: StepAnswer) -> None:
    """A step that the Guardian asks about while nobody will wait: its turn is over, or goes another way."""
    if answer.decision in _ASKS:
        _withdraw(tx, session_id, request_id)


def oldest(conn: Connection, limit: int) -> tuple[AskedStep, ...]:
    """The questions that have waited longest to be withdrawn."""
    query = select(withdrawals.c.session_id, withdrawals.c.request_id).order_by(withdrawals.c.created_at)
    return tuple(AskedStep(session_id, request_id) for session_id, request_id in conn.execute(query.limit(limit)))


def forget(tx: Tx, asked: AskedStep) -> None:
    """There is nothing more to tell the Guardian about this question."""
    known = (withdrawals.c.session_id == asked.session_id, withdrawals.c.request_id == asked.request_id)
    tx.conn.execute(delete(withdrawals).where(*known))


def _withdraw(tx: Tx, session_id: str, request_id: str) -> None:
    # The session's row is locked by whoever calls, so nobody adds the same one in between.
    if find(tx.conn, withdrawals, session_id=session_id, request_id=request_id) is None:
        add(tx.conn, withdrawals, {"session_id": session_id, "request_id": request_id, "created_at": tx.now})
