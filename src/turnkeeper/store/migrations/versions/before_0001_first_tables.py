"""The first tables: agents, sessions, turns, events, the ledger, ACS steps, keys.

Before: the code of this version needs them. Written out and not taken from `store/tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the tables."""
    _create_agents()
    _create_api_keys()
    _create_sessions()
    _create_turns()
    _create_events()
    _create_idempotency_keys()
    _create_model_calls()
    _create_steps()
    _create_submissions()


def downgrade() -> None:
    """There is nothing before the first tables."""
    raise NotImplementedError("go back by restoring a copy")


def _partial_index(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    predicate = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=predicate, postgresql_where=predicate)


def _create_agents() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model_provider", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("model_params_json", sa.Text(), nullable=False),
        sa.Column("instructions", sa.Text(), nullable=False),
        sa.Column("tools_json", sa.Text(), nullable=False),
        sa.Column("timeout_ms", sa.BigInteger(), nullable=False),
        sa.Column("max_repair_attempts", sa.Integer(), nullable=False),
        sa.Column("metadata_json", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_agents"),
    )


def _create_api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("secret_sha256", name="uq_api_keys_secret_sha256"),
    )


def _create_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("agent_version", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("metadata_json", sa.Text(), nullable=False),
        sa.Column("max_model_calls", sa.BigInteger(), nullable=True),
        sa.Column("max_total_tokens", sa.BigInteger(), nullable=True),
        sa.Column("max_output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("last_sequence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_ordinal", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("taken_model_calls", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("taken_total_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("taken_output_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("budget_reached", sa.Boolean(), nullable=False),
        sa.Column("acs_state", sa.Text(), nullable=False),
        sa.Column("witnessed_head", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_active_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("(status = 'closed') = (closed_at IS NOT NULL)", name="ck_sessions_closed_has_a_time"),
        sa.CheckConstraint("acs_state IN ('new', 'started', 'refused', 'ended')", name="ck_sessions_acs_state_known"),
        sa.CheckConstraint("status IN ('open', 'closing', 'closed')", name="ck_sessions_status_known"),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_sessions_agent_id"),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_agent", "sessions", ["agent_id", "id"])
    _partial_index("ix_sessions_closing", "sessions", ["id"], "status = 'closing'")


def _create_turns() -> None:
    op.create_table(
        "turns",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("agent_version", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("front_of", sa.Text(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("lease_expires_at", sa.BigInteger(), nullable=True),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("input_text", sa.Text(), nullable=False),
        sa.Column("input_json", sa.Text(), nullable=False),
        sa.Column("output_schema_json", sa.Text(), nullable=True),
        sa.Column("metadata_json", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("max_model_calls", sa.BigInteger(), nullable=True),
        sa.Column("max_total_tokens", sa.BigInteger(), nullable=True),
        sa.Column("max_output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("budget_reached", sa.Boolean(), nullable=False),
        sa.Column("max_repair_attempts", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("result_json", sa.Text(), nullable=True),
        sa.Column("result_error", sa.Text(), nullable=True),
        sa.Column("error_json", sa.Text(), nullable=True),
        sa.Column("tool_calls", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("usage_json", sa.Text(), nullable=True),
        sa.Column("canceled_by_json", sa.Text(), nullable=True),
        sa.Column("cancel_mode", sa.Text(), nullable=True),
        sa.Column("cancel_requested_at", sa.BigInteger(), nullable=True),
        sa.Column("cancel_stop_reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("first_sequence", sa.BigInteger(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.Column("terminal_event_id", sa.Text(), nullable=True),
        sa.Column("terminal_data", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(status IN ('completed', 'failed', 'canceled'))"
            " = (terminal_event_id IS NOT NULL AND terminal_data IS NOT NULL AND ended_at IS NOT NULL)",
            name="ck_turns_terminal_has_its_event",
        ),
        sa.CheckConstraint(
            "status IN ('queued', 'starting', 'running', 'completed', 'failed', 'canceled')",
            name="ck_turns_status_known",
        ),
        sa.CheckConstraint(
            "status NOT IN ('completed', 'failed', 'canceled') OR front_of IS NULL",
            name="ck_turns_terminal_leaves_the_front",
        ),
        sa.CheckConstraint(
            "status NOT IN ('starting', 'running') OR owner IS NOT NULL", name="ck_turns_active_is_owned"
        ),
        sa.CheckConstraint("front_of IS NULL OR front_of = session_id", name="ck_turns_front_of_its_session"),
        sa.CheckConstraint("owner IS NULL OR front_of IS NOT NULL", name="ck_turns_owned_at_the_front"),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_turns_agent_id"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_turns_session_id"),
        sa.PrimaryKeyConstraint("id", name="pk_turns"),
        sa.UniqueConstraint("terminal_event_id", name="uq_turns_terminal_event_id"),
    )
    _partial_index("ix_turns_claimable", "turns", ["id"], "front_of IS NOT NULL AND owner IS NULL")
    _partial_index("ix_turns_owned", "turns", ["id"], "owner IS NOT NULL")
    op.create_index("ix_turns_session", "turns", ["session_id", "id"])
    op.create_index("ix_turns_queue", "turns", ["session_id", "status", "seq"])
    _partial_index("uq_turns_one_front", "turns", ["front_of"], "front_of IS NOT NULL", unique=True)
    op.create_index("uq_turns_seq", "turns", ["session_id", "seq"], unique=True)


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.CheckConstraint("source IN ('sandbox', 'platform')", name="ck_events_source_known"),
        sa.CheckConstraint("sequence >= 1", name="ck_events_sequence_from_one"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_events_session_id"),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name="fk_events_turn_id"),
        sa.PrimaryKeyConstraint("session_id", "sequence", name="pk_events"),
        sa.UniqueConstraint("id", name="uq_events_id"),
    )
    op.create_index("ix_events_turn", "events", ["session_id", "turn_id", "sequence"])
    _partial_index(
        "uq_events_one_terminal",
        "events",
        ["turn_id"],
        "type IN ('turn.completed', 'turn.failed', 'turn.canceled')",
        unique=True,
    )


def _create_idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name="fk_idempotency_keys_turn_id"),
        sa.PrimaryKeyConstraint("project_id", "key", name="pk_idempotency_keys"),
    )


def _create_model_calls() -> None:
    op.create_table(
        "model_calls",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("call", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reserved_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reserved_output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("accepted", sa.Boolean(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cached_input_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.Column("latency_ms", sa.BigInteger(), nullable=True),
        sa.Column("first_token_ms", sa.BigInteger(), nullable=True),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("settled_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("state IN ('reserved', 'assumed', 'settled')", name="ck_model_calls_state_known"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_model_calls_session_id"),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name="fk_model_calls_turn_id"),
        sa.PrimaryKeyConstraint("turn_id", "call", name="pk_model_calls"),
    )


def _create_steps() -> None:
    op.create_table(
        "steps",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=True),
        sa.Column("in_window", sa.Boolean(), nullable=False),
        sa.Column("payload_json", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=True),
        sa.Column("chain_hash", sa.Text(), nullable=True),
        sa.Column("reasoning", sa.Text(), nullable=True),
        sa.Column("reason_codes_json", sa.Text(), nullable=False),
        sa.Column("error_code", sa.Integer(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("answered_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("state IN ('pending', 'answered', 'refused', 'dead')", name="ck_steps_state_known"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_steps_session_id"),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name="fk_steps_turn_id"),
        sa.PrimaryKeyConstraint("session_id", "ordinal", name="pk_steps"),
        sa.UniqueConstraint("request_id", name="uq_steps_request_id"),
    )
    _partial_index("ix_steps_dead", "steps", ["created_at"], "state = 'dead'")
    _partial_index("ix_steps_pending", "steps", ["session_id"], "state = 'pending'")
    op.create_index("ix_steps_state", "steps", ["session_id", "state", "ordinal"])
    op.create_index("ix_steps_turn", "steps", ["session_id", "turn_id", "ordinal"])


def _create_submissions() -> None:
    op.create_table(
        "submissions",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("submission", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("valid", sa.Boolean(), nullable=False),
        sa.Column("value_json", sa.Text(), nullable=False),
        sa.Column("errors_json", sa.Text(), nullable=False),
        sa.Column("published", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name="fk_submissions_turn_id"),
        sa.PrimaryKeyConstraint("turn_id", "submission", name="pk_submissions"),
    )
