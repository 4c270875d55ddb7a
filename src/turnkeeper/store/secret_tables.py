"""The table of secrets, beside those of `store/tables.py` and in the same metadata. Values lie in it sealed."""

from typing import Final

from sqlalchemy import Column, Table, Text, UniqueConstraint

from turnkeeper.store.tables import Instant, metadata

secrets: Final = Table(
    "secrets",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("hosts_json", Text, nullable=False),
    Column("sealed", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    UniqueConstraint("project_id", "name"),
)
