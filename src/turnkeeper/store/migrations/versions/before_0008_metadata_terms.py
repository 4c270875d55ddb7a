"""An index of what lists are narrowed by: the top-level members of metadata.

Before: the code of this version needs it. Written out and not taken from `store/tables.py` and `turns/metadata.py`,
which move on.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import orjson
import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ROWS_AT_ONCE = 1_000
MAX_MEMBERS = 64
MAX_CHARACTERS = 512


def upgrade() -> None:
    """Changes the tables, and indexes what is there."""
    op.create_table(
        "metadata_terms",
        sa.Column("thing_id", sa.Text(), nullable=False),
        sa.Column("term", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("thing_id", "term", name=op.f("pk_metadata_terms")),
    )
    op.create_index("ix_metadata_terms_found", "metadata_terms", ["project_id", "term", "thing_id"], unique=True)
    for kind, table in (("session", "sessions"), ("turn", "turns")):
        _index_all(kind, table)


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")


def _index_all(kind: str, table: str) -> None:
    conn = op.get_bind()
    terms = sa.table("metadata_terms", sa.column("thing_id"), sa.column("term"), sa.column("project_id"))
    things = sa.table(table, sa.column("id"), sa.column("project_id"), sa.column("metadata_json"))
    after = ""
    while True:
        described = sa.select(things).where(things.c.id > after, things.c.metadata_json != "{}")
        rows = conn.execute(described.order_by(things.c.id).limit(ROWS_AT_ONCE)).all()
        found = [
            {"thing_id": thing_id, "term": term, "project_id": project_id}
            for thing_id, project_id, metadata_json in rows
            for term in list(_terms(kind, metadata_json))[:MAX_MEMBERS]
        ]
        if found:
            conn.execute(sa.insert(terms), found)
        if len(rows) < ROWS_AT_ONCE:
            return
        after = rows[-1][0]


def _terms(kind: str, metadata_json: str) -> Iterator[str]:
    members: dict[str, Any] = json.loads(metadata_json, parse_int=str, parse_float=str)
    for name, value in members.items():
        if isinstance(value, (dict, list)):
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        if len(name) <= MAX_CHARACTERS and len(text) <= MAX_CHARACTERS:
            yield hashlib.sha256(orjson.dumps([kind, name, text])).hexdigest()
