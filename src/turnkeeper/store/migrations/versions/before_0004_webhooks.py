"""What webhooks need: endpoints and their secrets, a row per delivery and per try, events outside of sessions.

Before: the code of this version needs it. Written out and not taken from `store/webhook_tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Changes the tables."""
    _create_endpoints()
    _create_secrets()
    _create_deliveries()
    _create_attempts()
    _create_project_events()


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")


def _create_endpoints() -> None:
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("types_json", sa.Text(), nullable=False),
        sa.Column("agent_ids_json", sa.Text(), nullable=False),
        sa.Column("ordering", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("failing_since", sa.BigInteger(), nullable=True),
        sa.Column("api_version", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("ordering IN ('none', 'session')", name=op.f("ck_webhook_endpoints_ordering_known")),
        sa.CheckConstraint(
            "NOT (enabled AND deleted_at IS NOT NULL)", name=op.f("ck_webhook_endpoints_deleted_is_off")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_endpoints")),
    )


def _create_secrets() -> None:
    op.create_table(
        "webhook_secrets",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["endpoint_id"], ["webhook_endpoints.id"], name=op.f("fk_webhook_secrets_endpoint_id")),
        sa.PrimaryKeyConstraint("endpoint_id", "number", name=op.f("pk_webhook_secrets")),
    )


def _create_deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("sequence", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", sa.BigInteger(), nullable=True),
        sa.Column("last_status", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'delivered', 'dead', 'canceled')",
            name=op.f("ck_webhook_deliveries_status_known"),
        ),
        sa.CheckConstraint(
            "(status = 'pending') = (next_at IS NOT NULL)", name=op.f("ck_webhook_deliveries_pending_has_a_time")
        ),
        sa.CheckConstraint(
            "(owner IS NULL) = (lease_expires_at IS NULL)", name=op.f("ck_webhook_deliveries_owner_has_a_lease")
        ),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["webhook_endpoints.id"], name=op.f("fk_webhook_deliveries_endpoint_id")
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_webhook_deliveries_session_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
        sa.UniqueConstraint("endpoint_id", "event_id", name=op.f("uq_webhook_deliveries_endpoint_id_event_id")),
    )
    waiting = sa.text("status = 'pending'")
    for name, columns in (
        ("ix_webhook_deliveries_due", ["endpoint_id", "next_at"]),
        ("ix_webhook_deliveries_order", ["endpoint_id", "session_id", "sequence"]),
    ):
        op.create_index(name, "webhook_deliveries", columns, sqlite_where=waiting, postgresql_where=waiting)
    op.create_index("ix_webhook_deliveries_list", "webhook_deliveries", ["endpoint_id", "id"])
    op.create_index("ix_webhook_deliveries_replay", "webhook_deliveries", ["endpoint_id", "created_at"])


def _create_attempts() -> None:
    op.create_table(
        "webhook_attempts",
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("duration_ms", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("response_head", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["delivery_id"], ["webhook_deliveries.id"], name=op.f("fk_webhook_attempts_delivery_id")
        ),
        sa.PrimaryKeyConstraint("delivery_id", "number", name=op.f("pk_webhook_attempts")),
    )


def _create_project_events() -> None:
    op.create_table(
        "project_events",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project_events")),
    )
