"""What pauses need of the turn store.

Before: the code of this version needs it. Written out and not taken from `store/tables.py`, which moves on.
"""

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Changes the tables."""


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")
