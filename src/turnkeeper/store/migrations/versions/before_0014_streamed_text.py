"""Agents whose text may be followed before it is decided on.

Before: the code of this version needs it. Written out and not taken from `store/tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Changes the tables."""
    for table in ("agents", "agent_versions"):
        column = sa.Column("stream_before_decision", sa.Boolean(), server_default=sa.false(), nullable=False)
        op.add_column(table, column)


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")
