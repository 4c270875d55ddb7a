"""An Idempotency-Key stands for whatever its request made, and not for turns alone.

Before: the code of this version needs it. Written out and not taken from `store/tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

KEPT = "project_id, key, fingerprint"


def upgrade() -> None:
    """Changes the tables. Keys that are there keep their turns."""
    # Made anew by way of a copy: neither database renames a column together with the constraints that name it.
    op.create_table("idempotency_copies", *_columns())
    op.execute(
        f"INSERT INTO idempotency_copies ({KEPT}, thing_id, created_at)"  # noqa: S608  our own column names
        f" SELECT {KEPT}, turn_id, created_at FROM idempotency_keys"
    )
    op.drop_table("idempotency_keys")
    primary = sa.PrimaryKeyConstraint("project_id", "key", name=op.f("pk_idempotency_keys"))
    op.create_table("idempotency_keys", *_columns(), primary)
    op.execute(
        f"INSERT INTO idempotency_keys ({KEPT}, thing_id, created_at)"  # noqa: S608  our own column names
        f" SELECT {KEPT}, thing_id, created_at FROM idempotency_copies"
    )
    op.drop_table("idempotency_copies")


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")


def _columns() -> tuple["sa.Column[str] | sa.Column[int]", ...]:
    return (
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("thing_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
    )
