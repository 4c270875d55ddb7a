"""The tables of webhooks, beside those of `store/tables.py` and in the same metadata.

Answers for what the database itself makes impossible: one event twice for one endpoint. `project_events` holds events
outside of every session; they have no sequence.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    literal_column,
)

from turnkeeper.store.tables import EscapedText, Instant, metadata

webhook_endpoints: Final = Table(
    "webhook_endpoints",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
    Column("url", EscapedText, nullable=False),
    Column("types_json", Text, nullable=False),
    Column("agent_ids_json", Text, nullable=False),
    Column("ordering", Text, nullable=False),
    Column("description", EscapedText, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("disabled_reason", Text),
    Column("failing_since", Instant),
    Column("api_version", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("deleted_at", Instant),
    CheckConstraint("ordering IN ('none', 'session')", name="ordering_known"),
    CheckConstraint("NOT (enabled AND deleted_at IS NOT NULL)", name="deleted_is_off"),
)

webhook_secrets: Final = Table(
    "webhook_secrets",
    metadata,
    Column("endpoint_id", Text, ForeignKey("webhook_endpoints.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    # Readable, because it signs: whoever reads this database could sign as us. The operator's page says so.
    Column("secret", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
)

webhook_deliveries: Final = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("endpoint_id", Text, ForeignKey("webhook_endpoints.id"), nullable=False),
    Column("event_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("session_id", Text, ForeignKey("sessions.id")),
    Column("sequence", BigInteger),
    Column("status", Text, nullable=False),
    # attempts: every try there was. tries: those of this round, which the schedule goes by.
    Column("attempts", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("next_at", Instant),
    Column("owner", Text),
    Column("lease_expires_at", Instant),
    Column("last_status", Integer),
    Column("created_at", Instant, nullable=False),
    Column("ended_at", Instant),
    UniqueConstraint("endpoint_id", "event_id"),
    CheckConstraint("status IN ('pending', 'delivered', 'dead', 'canceled')", name="status_known"),
    CheckConstraint("(status = 'pending') = (next_at IS NOT NULL)", name="pending_has_a_time"),
    CheckConstraint("(owner IS NULL) = (lease_expires_at IS NULL)", name="owner_has_a_lease"),
)

webhook_attempts: Final = Table(
    "webhook_attempts",
    metadata,
    Column("delivery_id", Text, ForeignKey("webhook_deliveries.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Instant, nullable=False),
    Column("duration_ms", BigInteger, nullable=False),
    Column("status", Integer),
    Column("error", EscapedText),
    Column("response_head", EscapedText),
)

project_events: Final = Table(
    "project_events",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("data", Text, nullable=False),
)

IS_WAITING: Final = webhook_deliveries.c.status == literal_column("'pending'")

Index(
    "ix_webhook_deliveries_due",
    webhook_deliveries.c.endpoint_id,
    webhook_deliveries.c.next_at,
    sqlite_where=IS_WAITING,
    postgresql_where=IS_WAITING,
)
Index(
    "ix_webhook_deliveries_order",
    webhook_deliveries.c.endpoint_id,
    webhook_deliveries.c.session_id,
    webhook_deliveries.c.sequence,
    sqlite_where=IS_WAITING,
    postgresql_where=IS_WAITING,
)
Index("ix_webhook_deliveries_list", webhook_deliveries.c.endpoint_id, webhook_deliveries.c.id)
Index("ix_webhook_deliveries_replay", webhook_deliveries.c.endpoint_id, webhook_deliveries.c.created_at)
Index("ix_webhook_deliveries_session", webhook_deliveries.c.session_id)
