"""What the tool boxes of a session may reach.

Before: the code of this version needs it. Written out and not taken from `store/tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Changes the tables. Sessions that are there may reach what their agents may, which is nothing so far."""
    op.add_column("sessions", sa.Column("network_json", sa.Text()))


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")
