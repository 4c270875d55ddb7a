"""What the whole lifecycle needs: pauses, attempts, another order, leases that beat, fair shares, workers.

Before: the code of this version needs it. Written out and not taken from `store/tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

CHANGED_CHECKS = {
    "ck_turns_status_known": (
        "status IN ('queued', 'starting', 'running', 'paused', 'completed', 'failed', 'canceled')"
    ),
    "ck_turns_active_is_owned": "status <> 'running' OR owner IS NOT NULL",
    "ck_turns_terminal_has_its_event": (
        "(status IN ('completed', 'failed', 'canceled'))"
        " = (terminal_event_id IS NOT NULL AND terminal_data IS NOT NULL AND ended_at IS NOT NULL)"
    ),
    "ck_turns_terminal_leaves_the_front": "status NOT IN ('completed', 'failed', 'canceled') OR front_of IS NULL",
    "ck_turns_front_of_its_session": "front_of IS NULL OR front_of = session_id",
    "ck_turns_owned_at_the_front": "owner IS NULL OR front_of IS NOT NULL",
    "ck_turns_on_busy_known": "on_busy IN ('enqueue', 'reject', 'interrupt')",
}
"""SQLite makes the table anew and forgets what it is not told; PostgreSQL changes what differs."""


def upgrade() -> None:
    """Changes the tables."""
    with op.batch_alter_table("agents") as agents:
        agents.add_column(sa.Column("max_attempts", sa.Integer(), server_default="1", nullable=False))
    _drop_indexes()
    _change_turns()
    op.execute("UPDATE turns SET front_at = created_at WHERE front_of IS NOT NULL")
    _create_indexes()
    _create_queue_shares()
    _create_workers()


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")


def _change_turns() -> None:
    with op.batch_alter_table("turns") as turns:
        for name in _known_checks():
            turns.drop_constraint(name, type_="check")
        # A lease was told by a time; now it is told by a beat that moves. Turns keep their owner and are taken over.
        turns.drop_column("lease_expires_at")
        turns.add_column(sa.Column("beats", sa.BigInteger(), server_default="0", nullable=False))
        turns.add_column(sa.Column("beat_at", sa.BigInteger(), nullable=True))
        turns.add_column(sa.Column("api_key_id", sa.Text(), server_default=sa.text("''"), nullable=False))
        turns.add_column(sa.Column("rank", sa.BigInteger(), server_default="0", nullable=False))
        turns.add_column(sa.Column("front_at", sa.BigInteger(), nullable=True))
        turns.add_column(sa.Column("run_after", sa.BigInteger(), nullable=True))
        turns.add_column(sa.Column("start_by", sa.BigInteger(), nullable=True))
        turns.add_column(sa.Column("on_busy", sa.Text(), server_default="enqueue", nullable=False))
        turns.add_column(sa.Column("max_attempts", sa.Integer(), server_default="1", nullable=False))
        for name, condition in CHANGED_CHECKS.items():
            turns.create_check_constraint(name, sa.text(condition))


def _known_checks() -> list[str]:
    found = sa.inspect(op.get_bind()).get_check_constraints("turns")
    return [str(check["name"]) for check in found]


def _partial_index(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    predicate = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=predicate, postgresql_where=predicate)


def _drop_indexes() -> None:
    for name in ("ix_turns_claimable", "ix_turns_queue"):
        op.drop_index(name, table_name="turns")


def _create_indexes() -> None:
    claimable = "front_of IS NOT NULL AND owner IS NULL AND status IN ('queued', 'starting')"
    _partial_index("ix_turns_claimable", "turns", ["project_id", "api_key_id", "front_at", "id"], claimable)
    op.create_index("ix_turns_queue", "turns", ["session_id", "status", "rank", "seq"])
    _partial_index("ix_turns_waiting", "turns", ["api_key_id"], "status = 'queued'")
    _partial_index("ix_turns_start_by", "turns", ["start_by"], "status = 'queued' AND start_by IS NOT NULL")


def _create_queue_shares() -> None:
    op.create_table(
        "queue_shares",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("weight", sa.Integer(), server_default="1", nullable=False),
        sa.Column("began", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("served", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("scope IN ('project', 'key')", name="ck_queue_shares_scope_known"),
        sa.CheckConstraint("weight >= 1", name="ck_queue_shares_weight_positive"),
        sa.PrimaryKeyConstraint("scope", "project_id", "id", name="pk_queue_shares"),
    )
    op.execute(
        "INSERT INTO queue_shares (scope, project_id, id) SELECT DISTINCT 'key', project_id, api_key_id FROM turns"
    )
    op.execute(
        "INSERT INTO queue_shares (scope, project_id, id) SELECT DISTINCT 'project', project_id, project_id FROM turns"
    )


def _create_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("hold", sa.Text(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )
