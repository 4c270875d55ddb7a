"""What pauses and approvals need: a row per pause, per question and per remembered yes; how long turns ran before.

Before: the code of this version needs it. Written out and not taken from `store/tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Changes the tables."""
    op.add_column("agents", sa.Column("permissions_json", sa.Text(), server_default="{}", nullable=False))
    op.add_column("agents", sa.Column("client_tools_json", sa.Text(), server_default="[]", nullable=False))
    op.add_column("agents", sa.Column("pause_expiry_ms", sa.BigInteger(), nullable=True))
    op.add_column("sessions", sa.Column("deferrals", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("turns", sa.Column("active_ms", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("turns", sa.Column("active_since", sa.BigInteger(), nullable=True))
    op.execute("UPDATE turns SET active_since = started_at WHERE status = 'running'")
    _create_approvals()
    _create_pauses()
    _create_rules()


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")


def _create_approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        *_call_columns(),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("reasons_json", sa.Text(), nullable=False),
        sa.Column("timeout_decision", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("decided_by_json", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("remember", sa.Text(), nullable=True),
        sa.Column("modified_input_json", sa.Text(), nullable=True),
        sa.Column("context_json", sa.Text(), nullable=True),
        sa.CheckConstraint("kind IN ('ask', 'deferral', 'policy')", name="ck_approvals_kind_known"),
        sa.CheckConstraint("origin IN ('guardian', 'agent_policy')", name="ck_approvals_origin_known"),
        sa.CheckConstraint(
            "status IN ('pending', 'approved', 'denied', 'expired', 'canceled')", name="ck_approvals_status_known"
        ),
        sa.CheckConstraint("(status = 'pending') = (decided_at IS NULL)", name="ck_approvals_decided_has_a_time"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_approvals_session_id"),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name="fk_approvals_turn_id"),
        sa.PrimaryKeyConstraint("id", name="pk_approvals"),
    )
    _partial_index("ix_approvals_pending", "approvals", ["id"], "status = 'pending'")
    op.create_index("ix_approvals_session", "approvals", ["session_id", "id"])
    op.create_index("ix_approvals_turn", "approvals", ["turn_id"])


def _create_pauses() -> None:
    op.create_table(
        "pauses",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("window_closed", sa.Boolean(), nullable=False),
        sa.Column("approval_id", sa.Text(), nullable=True),
        *_call_columns(),
        sa.Column("paused_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("resolved_at", sa.BigInteger(), nullable=True),
        sa.Column("output", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint("reason IN ('approval', 'deferral', 'client_tool')", name="ck_pauses_reason_known"),
        sa.CheckConstraint("state IN ('waiting', 'resolved', 'over')", name="ck_pauses_state_known"),
        sa.CheckConstraint(
            "outcome IS NULL OR outcome IN ('approved', 'denied', 'expired', 'answered', 'canceled')",
            name="ck_pauses_outcome_known",
        ),
        sa.CheckConstraint("(state = 'waiting') = (outcome IS NULL)", name="ck_pauses_resolved_has_an_outcome"),
        sa.CheckConstraint(
            "(reason = 'client_tool') = (approval_id IS NULL)", name="ck_pauses_questions_have_approvals"
        ),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name="fk_pauses_turn_id"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_pauses_session_id"),
        sa.ForeignKeyConstraint(["approval_id"], ["approvals.id"], name="fk_pauses_approval_id"),
        sa.PrimaryKeyConstraint("turn_id", "number", name="pk_pauses"),
    )
    _partial_index("ix_pauses_waiting", "pauses", ["expires_at"], "state = 'waiting'")
    _partial_index("uq_pauses_one_open", "pauses", ["turn_id"], "state IN ('waiting', 'resolved')", unique=True)


def _create_rules() -> None:
    op.create_table(
        "approval_rules",
        sa.Column("approval_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("tool_name", sa.Text(), nullable=False),
        sa.Column("input_hash", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("decided_by_json", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["approval_id"], ["approvals.id"], name="fk_approval_rules_approval_id"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_approval_rules_session_id"),
        sa.PrimaryKeyConstraint("approval_id", name="pk_approval_rules"),
    )
    op.create_index("ix_approval_rules_session", "approval_rules", ["session_id", "approval_id"])


def _call_columns() -> list[sa.Column[str]]:
    return [
        sa.Column("tool_call_id", sa.Text(), nullable=False),
        sa.Column("tool_name", sa.Text(), nullable=False),
        sa.Column("tool_kind", sa.Text(), nullable=False),
        sa.Column("input_json", sa.Text(), nullable=False),
        sa.Column("input_hash", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
    ]


def _partial_index(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    predicate = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=predicate, postgresql_where=predicate)
