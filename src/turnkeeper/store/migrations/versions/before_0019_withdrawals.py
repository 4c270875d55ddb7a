"""Questions of turns that do not wait any more, until the Guardian has heard of it.

Before: the code of this version needs it. Written out and not taken from `store/pause_tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Changes the tables."""
    op.create_table(
        "withdrawals",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_withdrawals_session_id")),
        sa.PrimaryKeyConstraint("session_id", "request_id", name=op.f("pk_withdrawals")),
    )


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")
