"""The turn store's tables, for SQLite and PostgreSQL alike.

Answers for what the database itself makes impossible: two terminal events of one turn, two turns at the front of one
session, a gap filled twice. Times are milliseconds since 1970 in UTC. Texts from people and models are kept as JSON
strings, because PostgreSQL has no NUL in a text; columns ending in `_json` hold JSON texts as they were received.
"""

from datetime import datetime
from typing import Any, Final

import orjson
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    false,
    literal_column,
    text,
)
from sqlalchemy.types import TypeDecorator

from turnkeeper.clock import epoch_ms, from_epoch_ms
from turnkeeper.turns.model import PROJECT_ID


class Instant(TypeDecorator[datetime]):
    """An aware UTC time with milliseconds."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """The time as milliseconds."""
        return None if value is None else epoch_ms(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """The time of stored milliseconds."""
        return None if value is None else from_epoch_ms(value)


class EscapedText(TypeDecorator[str]):
    """Any text, NUL included, stored as a JSON string."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """The text as a JSON string."""
        return None if value is None else orjson.dumps(value).decode()

    def process_result_value(self, value: Any | None, dialect: Dialect) -> str | None:
        """The text of a stored JSON string."""
        return None if value is None else orjson.loads(value)


NAMING: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

metadata: Final = MetaData(naming_convention=NAMING)


def _id() -> Column[str]:
    return Column("id", Text, primary_key=True)


def _counter(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default="0")


def _agent_version() -> tuple[Column[Any], ...]:
    return (
        Column("project_id", Text, nullable=False),
        Column("name", EscapedText, nullable=False),
        Column("model_provider", EscapedText, nullable=False),
        Column("model_id", EscapedText, nullable=False),
        Column("model_params_json", Text, nullable=False),
        Column("instructions", EscapedText, nullable=False),
        Column("tools_json", Text, nullable=False),
        Column("timeout_ms", BigInteger, nullable=False),
        Column("max_repair_attempts", Integer, nullable=False),
        Column("metadata_json", Text, nullable=False),
        Column("created_at", Instant, nullable=False),
        Column("max_attempts", Integer, nullable=False, server_default="1"),
        Column("permissions_json", Text, nullable=False, server_default="{}"),
        Column("client_tools_json", Text, nullable=False, server_default="[]"),
        Column("pause_expiry_ms", BigInteger),
        Column("stream_before_decision", Boolean, nullable=False, server_default=false()),
        Column("sandbox_json", Text, nullable=False, server_default="{}"),
        Column("harness_json", Text, nullable=False, server_default="{}"),
        Column("mcp_servers_json", Text, nullable=False, server_default="[]"),
        Column("subagents_json", Text, nullable=False, server_default="[]"),
        Column("skills_json", Text, nullable=False, server_default="[]"),
    )


# The newest version of each agent, as lists show it; `agent_versions` has all of them, and they never change.
agents: Final = Table(
    "agents",
    metadata,
    _id(),
    Column("version", Integer, nullable=False),
    *_agent_version(),
    Column("archived_at", Instant),
    # The budget that it was made with.
    Column("budget_id", Text),
)

agent_versions: Final = Table(
    "agent_versions",
    metadata,
    Column("agent_id", Text, ForeignKey("agents.id"), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    *_agent_version(),
)

sessions: Final = Table(
    "sessions",
    metadata,
    _id(),
    Column("project_id", Text, nullable=False),
    Column("agent_id", Text, ForeignKey("agents.id"), nullable=False),
    Column("agent_version", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("title", EscapedText),
    Column("metadata_json", Text, nullable=False),
    # Counters of this row are changed only by a transaction that has locked it.
    _counter("last_sequence"),
    _counter("last_seq"),
    _counter("last_ordinal"),
    _counter("deferrals"),
    Column("acs_state", Text, nullable=False),
    Column("witnessed_head", EscapedText),
    Column("created_at", Instant, nullable=False),
    Column("last_active_at", Instant, nullable=False),
    Column("closed_at", Instant),
    # The budget that it was opened with.
    Column("budget_id", Text),
    # Counted from the last activity; null keeps the session until it is deleted.
    Column("retention_days", Integer),
    Column("delete_requested_at", Instant),
    Column("erased_at", Instant),
    # Opened for one turn, and closed with it.
    Column("ephemeral", Boolean, nullable=False, server_default=false()),
    # What its tool boxes may reach of what the agent's may; null is all of that.
    Column("network_json", Text),
    # The variables in its tool boxes, and the secrets that they stand for.
    Column("secrets_json", Text, nullable=False, server_default="[]"),
    CheckConstraint("status IN ('open', 'closing', 'closed')", name="status_known"),
    CheckConstraint("acs_state IN ('new', 'started', 'refused', 'ended')", name="acs_state_known"),
    CheckConstraint("(status = 'closed') = (closed_at IS NOT NULL)", name="closed_has_a_time"),
)

turns: Final = Table(
    "turns",
    metadata,
    _id(),
    Column("project_id", Text, nullable=False),
    Column("session_id", Text, ForeignKey("sessions.id"), nullable=False),
    Column("agent_id", Text, ForeignKey("agents.id"), nullable=False),
    Column("agent_version", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    # The session whose front this turn is: it may be claimed, or is claimed, starting, running or paused.
    Column("front_of", Text),
    Column("owner", Text),
    Column("fence", BigInteger, nullable=False),
    Column("stop_reason", Text),
    Column("input_text", EscapedText, nullable=False),
    Column("input_json", Text, nullable=False),
    Column("output_schema_json", Text),
    Column("metadata_json", Text, nullable=False),
    Column("idempotency_key", Text),
    Column("max_repair_attempts", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("text", EscapedText),
    Column("result_json", Text),
    Column("result_error", Text),
    Column("error_json", Text),
    _counter("tool_calls"),
    Column("usage_json", Text),
    Column("canceled_by_json", Text),
    Column("cancel_mode", Text),
    Column("cancel_requested_at", Instant),
    Column("cancel_stop_reason", Text),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    Column("duration_ms", BigInteger),
    Column("first_sequence", BigInteger, nullable=False),
    Column("last_sequence", BigInteger, nullable=False),
    Column("terminal_event_id", Text, unique=True),
    Column("terminal_data", Text),
    # A lease is a number that moves: who watches it stand still for a lease's time may take the turn.
    _counter("beats"),
    Column("beat_at", Instant),
    # Empty where no API key posted it.
    Column("api_key_id", Text, nullable=False, server_default=text("''")),
    # Whose runners run it; empty where workers do.
    Column("pool", Text, nullable=False, server_default=text("''")),
    # Waiting turns run by rank, then by seq; a turn that interrupts goes below every rank there is.
    _counter("rank"),
    Column("front_at", Instant),
    Column("run_after", Instant),
    Column("start_by", Instant),
    Column("on_busy", Text, nullable=False, server_default="enqueue"),
    Column("max_attempts", Integer, nullable=False, server_default="1"),
    # How long it ran before it was paused last, and since when it has run after that.
    _counter("active_ms"),
    Column("active_since", Instant),
    # The turn whose input this one does again.
    Column("retry_of", Text),
    # The files that came with the input, as they were then.
    Column("input_files_json", Text, nullable=False, server_default="[]"),
    # The limits it was posted with; their figures are a row of `budgets` until it ends.
    Column("budget_json", Text),
    # How much of its running time its budgets were charged with.
    _counter("charged_ms"),
    CheckConstraint(
        "status IN ('queued', 'starting', 'running', 'paused', 'completed', 'failed', 'canceled')", name="status_known"
    ),
    CheckConstraint("on_busy IN ('enqueue', 'reject', 'interrupt')", name="on_busy_known"),
    CheckConstraint("owner IS NULL OR front_of IS NOT NULL", name="owned_at_the_front"),
    CheckConstraint("front_of IS NULL OR front_of = session_id", name="front_of_its_session"),
    CheckConstraint("status <> 'running' OR owner IS NOT NULL", name="active_is_owned"),
    CheckConstraint(
        "(status IN ('completed', 'failed', 'canceled'))"
        " = (terminal_event_id IS NOT NULL AND terminal_data IS NOT NULL AND ended_at IS NOT NULL)",
        name="terminal_has_its_event",
    ),
    CheckConstraint(
        "status NOT IN ('completed', 'failed', 'canceled') OR front_of IS NULL", name="terminal_leaves_the_front"
    ),
)

events: Final = Table(
    "events",
    metadata,
    Column("session_id", Text, ForeignKey("sessions.id"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False, unique=True),
    Column("project_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("turn_id", Text, ForeignKey("turns.id")),
    Column("attempt", Integer),
    Column("created_at", Instant, nullable=False),
    Column("data", Text, nullable=False),
    # The subagent whose doing it tells of.
    Column("thread_id", Text),
    CheckConstraint("source IN ('sandbox', 'platform')", name="source_known"),
    CheckConstraint("sequence >= 1", name="sequence_from_one"),
)

model_calls: Final = Table(
    "model_calls",
    metadata,
    Column("turn_id", Text, ForeignKey("turns.id"), primary_key=True),
    Column("call", Integer, primary_key=True, autoincrement=False),
    Column("session_id", Text, ForeignKey("sessions.id"), nullable=False),
    # reserved: running. assumed: its worker is gone and the reservation was charged. settled: the gateway's figures.
    Column("state", Text, nullable=False),
    Column("reserved_input_tokens", BigInteger, nullable=False),
    Column("reserved_output_tokens", BigInteger, nullable=False),
    Column("provider", EscapedText, nullable=False),
    Column("model", EscapedText, nullable=False),
    Column("accepted", Boolean, nullable=False),
    *(_counter(name) for name in ("input_tokens", "cached_input_tokens", "cache_write_tokens")),
    *(_counter(name) for name in ("output_tokens", "reasoning_tokens")),
    Column("estimated", Boolean, nullable=False),
    Column("latency_ms", BigInteger),
    Column("first_token_ms", BigInteger),
    Column("finish_reason", EscapedText),
    Column("retries", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("settled_at", Instant),
    # The price when the call began; null where none was known. The cost is whole units and trillionths.
    Column("price_json", Text),
    Column("cost_currency", Text),
    *(_counter(name) for name in ("cost_units", "cost_picos")),
    # The subagent that made it.
    Column("thread_id", Text),
    CheckConstraint("state IN ('reserved', 'assumed', 'settled')", name="state_known"),
)

submissions: Final = Table(
    "submissions",
    metadata,
    Column("turn_id", Text, ForeignKey("turns.id"), primary_key=True),
    Column("submission", Integer, primary_key=True, autoincrement=False),
    Column("valid", Boolean, nullable=False),
    Column("value_json", Text, nullable=False),
    Column("errors_json", Text, nullable=False),
    Column("published", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
)

steps: Final = Table(
    "steps",
    metadata,
    Column("session_id", Text, ForeignKey("sessions.id"), primary_key=True),
    Column("ordinal", BigInteger, primary_key=True, autoincrement=False),
    Column("request_id", Text, nullable=False, unique=True),
    Column("method", Text, nullable=False),
    Column("turn_id", Text, ForeignKey("turns.id")),
    Column("in_window", Boolean, nullable=False),
    Column("payload_json", Text),
    Column("outcome", Text),
    Column("state", Text, nullable=False),
    Column("decision", Text),
    Column("chain_hash", EscapedText),
    Column("reasoning", EscapedText),
    Column("reason_codes_json", Text, nullable=False),
    Column("error_code", Integer),
    Column("attempts", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("answered_at", Instant),
    # The subagent in whose session of the Guardian it belongs; without one it is the session's own.
    Column("thread_id", Text),
    CheckConstraint("state IN ('pending', 'answered', 'refused', 'dead')", name="state_known"),
)

idempotency_keys: Final = Table(
    "idempotency_keys",
    metadata,
    Column("project_id", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    # What it stands for: a turn, or whatever else was made with it. Ids tell their kind.
    Column("thing_id", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
)

api_keys: Final = Table(
    "api_keys",
    metadata,
    _id(),
    Column("name", EscapedText, nullable=False),
    Column("secret_sha256", Text, nullable=False, unique=True),
    Column("created_at", Instant, nullable=False),
    Column("revoked_at", Instant),
    Column("project_id", Text, nullable=False, server_default=PROJECT_ID),
    Column("scopes_json", Text, nullable=False, server_default='["*"]'),
    Column("agent_ids_json", Text, nullable=False, server_default="[]"),
    *(Column(name, Integer) for name in ("requests_per_minute", "concurrent_turns", "queued_turns", "streams")),
    Column("expires_at", Instant),
    Column("last_used_at", Instant),
    # The secret before the last rotation, for as long as the two overlap.
    Column("previous_sha256", Text),
    Column("previous_until", Instant),
)

queue_shares: Final = Table(
    "queue_shares",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("project_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("weight", Integer, nullable=False, server_default="1"),
    _counter("began"),
    _counter("served"),
    CheckConstraint("scope IN ('project', 'key')", name="scope_known"),
    CheckConstraint("weight >= 1", name="weight_positive"),
)

# One row per member of metadata that lists are narrowed by (`turns.metadata`); `thing_id` is a session's or a turn's.
metadata_terms: Final = Table(
    "metadata_terms",
    metadata,
    Column("thing_id", Text, primary_key=True),
    Column("term", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
)

# A row while the platform is drained: no turn is accepted or begun, by any process.
drains: Final = Table(
    "drains",
    metadata,
    _id(),
    Column("since", Instant, nullable=False),
    Column("reason", EscapedText),
    Column("asked_by_json", Text, nullable=False),
    CheckConstraint("id = 'platform'", name="one_row"),
)

workers: Final = Table(
    "workers",
    metadata,
    _id(),
    Column("host", EscapedText, nullable=False),
    Column("pid", Integer, nullable=False),
    # What the lock that tells of the worker's end belongs to; null while it holds none.
    Column("hold", Text),
    Column("started_at", Instant, nullable=False),
)

# A partial index is used only where a query states its predicate; SQLite wants it with the constant written out, so
# these expressions are used in both places.
IS_QUEUED: Final = turns.c.status == literal_column("'queued'")
IS_ACTIVE: Final = turns.c.status.in_([literal_column(f"'{status}'") for status in ("starting", "running", "paused")])
IS_CLAIMABLE: Final = (
    turns.c.front_of.is_not(None)
    & turns.c.owner.is_(None)
    & turns.c.status.in_([literal_column("'queued'"), literal_column("'starting'")])
)
IS_PENDING: Final = steps.c.state == literal_column("'pending'")
IS_DEAD: Final = steps.c.state == literal_column("'dead'")
IS_CLOSING: Final = sessions.c.status == literal_column("'closing'")
IS_KEPT: Final = sessions.c.delete_requested_at.is_(None) & sessions.c.retention_days.is_not(None)
IS_DOOMED: Final = sessions.c.delete_requested_at.is_not(None) & sessions.c.erased_at.is_(None)
IS_TERMINAL_EVENT: Final = events.c.type.in_(
    [literal_column("'turn.completed'"), literal_column("'turn.failed'"), literal_column("'turn.canceled'")]
)


def _partial(name: str, *columns: Column[Any], where: Any, unique: bool = False) -> None:
    Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


_partial("uq_events_one_terminal", events.c.turn_id, where=IS_TERMINAL_EVENT, unique=True)
_partial("uq_turns_one_front", turns.c.front_of, where=turns.c.front_of.is_not(None), unique=True)
_partial(
    "ix_turns_claimable",
    turns.c.project_id,
    turns.c.api_key_id,
    turns.c.front_at,
    turns.c.id,
    where=IS_CLAIMABLE,
)
_partial("ix_turns_waiting", turns.c.api_key_id, where=IS_QUEUED)
_partial("ix_turns_start_by", turns.c.start_by, where=IS_QUEUED & turns.c.start_by.is_not(None))
_partial("ix_turns_owned", turns.c.id, where=turns.c.owner.is_not(None))
_partial("ix_steps_pending", steps.c.session_id, where=IS_PENDING)
_partial("ix_steps_dead", steps.c.created_at, where=IS_DEAD)
_partial("ix_turns_fronts", turns.c.api_key_id, where=turns.c.front_of.is_not(None))
_partial("ix_sessions_kept", sessions.c.id, where=IS_KEPT)
_partial("ix_sessions_doomed", sessions.c.id, where=IS_DOOMED)
_partial("ix_sessions_closing", sessions.c.id, where=IS_CLOSING)
# These name one column more than seems needed: without statistics SQLite takes the index that matches most terms, and
# must not walk through a session's ended turns or settled steps.
Index("ix_turns_queue", turns.c.session_id, turns.c.status, turns.c.rank, turns.c.seq)
Index("ix_events_turn", events.c.session_id, events.c.turn_id, events.c.sequence)
Index("ix_steps_turn", steps.c.session_id, steps.c.turn_id, steps.c.ordinal)
Index("ix_steps_state", steps.c.session_id, steps.c.state, steps.c.ordinal)
Index("uq_turns_seq", turns.c.session_id, turns.c.seq, unique=True)
Index("ix_turns_session", turns.c.session_id, turns.c.id)
Index("ix_model_calls_session", model_calls.c.session_id, model_calls.c.created_at)
Index("ix_model_calls_time", model_calls.c.created_at)
Index("ix_sessions_agent", sessions.c.agent_id, sessions.c.id)
Index("uq_api_keys_previous_sha256", api_keys.c.previous_sha256, unique=True)
Index("ix_api_keys_project", api_keys.c.project_id, api_keys.c.id)
Index("ix_agents_project", agents.c.project_id, agents.c.id)
Index("ix_sessions_project", sessions.c.project_id, sessions.c.id)
Index("ix_turns_project", turns.c.project_id, turns.c.id)
Index(
    "ix_metadata_terms_found",
    metadata_terms.c.project_id,
    metadata_terms.c.term,
    metadata_terms.c.thing_id,
    unique=True,
)
