"""Which turns are run by the runners of a pool.

Before: the code of this version needs it. Written out and not taken from `store/tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Changes the tables. Turns that are there are run by workers."""
    op.add_column("turns", sa.Column("pool", sa.Text(), server_default=sa.text("''"), nullable=False))


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")
