"""The MCP servers of agents.

Before: the code of this version needs it. Written out and not taken from `store/tables.py`, which moves on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Changes the tables. Agents that are there use none."""
    for table in ("agents", "agent_versions"):
        op.add_column(table, sa.Column("mcp_servers_json", sa.Text(), nullable=False, server_default="[]"))


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")
