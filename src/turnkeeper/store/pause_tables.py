"""The tables of pauses and approvals, beside those of `store/tables.py` and in the same metadata.

Answers for what the database itself makes impossible: two open pauses of one turn, a question answered without a time.
"""

from typing import Final

from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Index, Integer, Table, Text, literal_column

from turnkeeper.store.tables import EscapedText, Instant, metadata

approvals: Final = Table(
    "approvals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("session_id", Text, ForeignKey("sessions.id"), nullable=False),
    Column("turn_id", Text, ForeignKey("turns.id"), nullable=False),
    Column("tool_call_id", Text, nullable=False),
    Column("tool_name", EscapedText, nullable=False),
    Column("tool_kind", Text, nullable=False),
    Column("input_json", Text, nullable=False),
    Column("input_hash", Text, nullable=False),
    # The ACS step that raised the question; null where the agent's own permissions ask.
    Column("request_id", Text),
    Column("question", EscapedText, nullable=False),
    Column("reasons_json", Text, nullable=False),
    Column("timeout_decision", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("decided_at", Instant),
    Column("decided_by_json", Text),
    Column("note", EscapedText),
    Column("remember", Text),
    Column("modified_input_json", Text),
    Column("context_json", Text),
    CheckConstraint("kind IN ('ask', 'deferral', 'policy')", name="kind_known"),
    CheckConstraint("origin IN ('guardian', 'agent_policy')", name="origin_known"),
    CheckConstraint("status IN ('pending', 'approved', 'denied', 'expired', 'canceled')", name="status_known"),
    CheckConstraint("(status = 'pending') = (decided_at IS NULL)", name="decided_has_a_time"),
)

pauses: Final = Table(
    "pauses",
    metadata,
    Column("turn_id", Text, ForeignKey("turns.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("session_id", Text, ForeignKey("sessions.id"), nullable=False),
    Column("reason", Text, nullable=False),
    # waiting: nothing is known. resolved: the turn may go on. over: it has gone on, or ended.
    Column("state", Text, nullable=False),
    Column("window_closed", Boolean, nullable=False),
    Column("approval_id", Text, ForeignKey("approvals.id")),
    Column("tool_call_id", Text, nullable=False),
    Column("tool_name", EscapedText, nullable=False),
    Column("tool_kind", Text, nullable=False),
    Column("input_json", Text, nullable=False),
    Column("input_hash", Text, nullable=False),
    Column("request_id", Text),
    Column("paused_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("outcome", Text),
    Column("resolved_at", Instant),
    Column("output", EscapedText),
    Column("error", EscapedText),
    CheckConstraint("reason IN ('approval', 'deferral', 'client_tool')", name="reason_known"),
    CheckConstraint("state IN ('waiting', 'resolved', 'over')", name="state_known"),
    CheckConstraint(
        "outcome IS NULL OR outcome IN ('approved', 'denied', 'expired', 'answered', 'canceled')", name="outcome_known"
    ),
    CheckConstraint("(state = 'waiting') = (outcome IS NULL)", name="resolved_has_an_outcome"),
    CheckConstraint("(reason = 'client_tool') = (approval_id IS NULL)", name="questions_have_approvals"),
)

approval_rules: Final = Table(
    "approval_rules",
    metadata,
    Column("approval_id", Text, ForeignKey("approvals.id"), primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.id"), nullable=False),
    Column("tool_name", EscapedText, nullable=False),
    Column("input_hash", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("request_id", Text),
    Column("created_at", Instant, nullable=False),
    Column("decided_by_json", Text, nullable=False),
)

# Questions that the Guardian is still to be told of: nobody waits for them any more.
withdrawals: Final = Table(
    "withdrawals",
    metadata,
    Column("session_id", Text, ForeignKey("sessions.id"), primary_key=True),
    Column("request_id", Text, primary_key=True),
    Column("created_at", Instant, nullable=False),
)

# Written out as in `store/tables.py`: a partial index is used only where a query states its predicate.
IS_WAITING: Final = pauses.c.state == literal_column("'waiting'")
IS_OPEN: Final = pauses.c.state.in_([literal_column("'waiting'"), literal_column("'resolved'")])
IS_PENDING_APPROVAL: Final = approvals.c.status == literal_column("'pending'")

Index("ix_pauses_waiting", pauses.c.expires_at, sqlite_where=IS_WAITING, postgresql_where=IS_WAITING)
Index("uq_pauses_one_open", pauses.c.turn_id, unique=True, sqlite_where=IS_OPEN, postgresql_where=IS_OPEN)
Index("ix_pauses_session", pauses.c.session_id)
Index("ix_approvals_pending", approvals.c.id, sqlite_where=IS_PENDING_APPROVAL, postgresql_where=IS_PENDING_APPROVAL)
Index("ix_approvals_session", approvals.c.session_id, approvals.c.id)
Index("ix_approvals_turn", approvals.c.turn_id)
Index("ix_approval_rules_session", approval_rules.c.session_id, approval_rules.c.approval_id)
