"""Who may do what, in which project; versions of agents; how long a session is kept, and what is left of it then.

Before: the code of this version needs it. Written out and not taken from `store/tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

FIRST_PROJECT = "prj_00000000000000000000000000"
VERSION_COLUMNS = (
    "version, project_id, name, model_provider, model_id, model_params_json, instructions, tools_json, timeout_ms,"
    " max_repair_attempts, metadata_json, created_at, max_attempts, permissions_json, client_tools_json,"
    " pause_expiry_ms"
)


def upgrade() -> None:
    """Changes the tables."""
    _change_keys()
    _change_sessions()
    op.add_column("agents", sa.Column("archived_at", sa.BigInteger(), nullable=True))
    _create_versions()
    _create_indexes()


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")


def _change_keys() -> None:
    """Keys that are there keep doing everything, in the project that everything is in."""
    for column in (
        sa.Column("project_id", sa.Text(), server_default=FIRST_PROJECT, nullable=False),
        sa.Column("scopes_json", sa.Text(), server_default='["*"]', nullable=False),
        sa.Column("agent_ids_json", sa.Text(), server_default="[]", nullable=False),
        sa.Column("requests_per_minute", sa.Integer(), nullable=True),
        sa.Column("concurrent_turns", sa.Integer(), nullable=True),
        sa.Column("queued_turns", sa.Integer(), nullable=True),
        sa.Column("streams", sa.Integer(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("previous_sha256", sa.Text(), nullable=True),
        sa.Column("previous_until", sa.BigInteger(), nullable=True),
    ):
        op.add_column("api_keys", column)


def _change_sessions() -> None:
    """Sessions that are there are kept until somebody says for how long: nothing is erased by an upgrade."""
    for column in (
        sa.Column("retention_days", sa.Integer(), nullable=True),
        sa.Column("delete_requested_at", sa.BigInteger(), nullable=True),
        sa.Column("erased_at", sa.BigInteger(), nullable=True),
    ):
        op.add_column("sessions", column)


def _create_versions() -> None:
    op.create_table(
        "agent_versions",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
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
        sa.Column("max_attempts", sa.Integer(), server_default="1", nullable=False),
        sa.Column("permissions_json", sa.Text(), server_default="{}", nullable=False),
        sa.Column("client_tools_json", sa.Text(), server_default="[]", nullable=False),
        sa.Column("pause_expiry_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_agent_versions_agent_id")),
        sa.PrimaryKeyConstraint("agent_id", "version", name=op.f("pk_agent_versions")),
    )
    op.execute(
        f"INSERT INTO agent_versions (agent_id, {VERSION_COLUMNS}) SELECT id, {VERSION_COLUMNS} FROM agents"  # noqa: S608  no value in it
    )


def _create_indexes() -> None:
    op.create_index("uq_api_keys_previous_sha256", "api_keys", ["previous_sha256"], unique=True)
    op.create_index("ix_api_keys_project", "api_keys", ["project_id", "id"])
    op.create_index("ix_agents_project", "agents", ["project_id", "id"])
    op.create_index("ix_sessions_project", "sessions", ["project_id", "id"])
    op.create_index("ix_turns_project", "turns", ["project_id", "id"])
    for name, table, columns, where in (
        ("ix_turns_fronts", "turns", ["api_key_id"], "front_of IS NOT NULL"),
        ("ix_sessions_kept", "sessions", ["id"], "delete_requested_at IS NULL AND retention_days IS NOT NULL"),
        ("ix_sessions_doomed", "sessions", ["id"], "delete_requested_at IS NOT NULL AND erased_at IS NULL"),
    ):
        predicate = sa.text(where)
        op.create_index(name, table, columns, sqlite_where=predicate, postgresql_where=predicate)
