"""Skills of a project, and of an agent.

Before: the code of this version needs it. Written out and not taken from `store/skill_tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Changes the tables. Agents that are there have no skills."""
    for table in ("agents", "agent_versions"):
        op.add_column(table, sa.Column("skills_json", sa.Text(), nullable=False, server_default="[]"))
    op.create_table(
        "skills",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_skills")),
        sa.UniqueConstraint("project_id", "name", "version", name=op.f("uq_skills_project_id_name_version")),
    )
    op.create_index("ix_skills_sha256", "skills", ["sha256"])


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")
