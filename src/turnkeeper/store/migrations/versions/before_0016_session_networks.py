"""What the tool boxes of a session may reach, and secrets that they may use there.

Before: the code of this version needs it. Written out and not taken from `store/tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Changes the tables. Sessions that are there may reach what their agents may, which is nothing so far."""
    op.add_column("sessions", sa.Column("network_json", sa.Text()))
    op.add_column("sessions", sa.Column("secrets_json", sa.Text(), server_default="[]", nullable=False))
    op.create_table(
        "secrets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hosts_json", sa.Text(), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_secrets_project_id_name")),
    )


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")
