"""Approvals and remembered answers as lists."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, RowMapping, delete, exists, select

from turnkeeper.store.pages import load_page, within
from turnkeeper.store.pause_rows import to_approval, to_rule
from turnkeeper.store.pause_tables import approval_rules, approvals
from turnkeeper.store.tables import sessions
from turnkeeper.store.tx import Tx, lock_session
from turnkeeper.turns.approvals import Approval, ApprovalRule, ApprovalStatus
from turnkeeper.turns.model import Reach
from turnkeeper.turns.ports import NotFound, Page, PageRequest

MAX_RULES: Final = 1_000


def list_approvals(
    conn: Connection,
    page: PageRequest,
    *,
    status: ApprovalStatus | None,
    session_id: str | None,
    reach: Reach | None = None,
) -> Page[Approval]:
    """A page of approvals, of one status, of one session, or of all."""
    query = select(approvals)
    if status is not None:
        query = query.where(approvals.c.status == status)
    if session_id is not None:
        query = query.where(approvals.c.session_id == session_id)
    if reach is not None:
        of_session = sessions.c.id == approvals.c.session_id
        query = query.where(exists().where(of_session, *within(reach, sessions.c.project_id, sessions.c.agent_id)))
    return load_page(conn, query, approvals.c.id, page, _converted)


def list_rules(conn: Connection, session_id: str) -> tuple[ApprovalRule, ...]:
    """The oldest `MAX_RULES` answers that a session remembers."""
    query = select(approval_rules).where(approval_rules.c.session_id == session_id)
    rows = conn.execute(query.order_by(approval_rules.c.approval_id).limit(MAX_RULES)).mappings()
    return tuple(to_rule(row) for row in rows)


def remove_rule(tx: Tx, session_id: str, approval_id: str) -> None:
    """Forgets an answer. Raises `NotFound`."""
    lock_session(tx, session_id)
    known = (approval_rules.c.approval_id == approval_id, approval_rules.c.session_id == session_id)
    if tx.conn.execute(delete(approval_rules).where(*known)).rowcount != 1:
        raise NotFound(f"{session_id} remembers no answer {approval_id}")


def _converted(rows: Sequence[RowMapping]) -> list[Approval]:
    return [to_approval(row) for row in rows]
