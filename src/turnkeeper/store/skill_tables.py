"""The table of skills, beside those of `store/tables.py` and in the same metadata. Their archives are contents."""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text, UniqueConstraint

from turnkeeper.store.tables import EscapedText, Instant, metadata

skills: Final = Table(
    "skills",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("description", EscapedText, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", Instant, nullable=False),
    UniqueConstraint("project_id", "name", "version"),
)

Index("ix_skills_sha256", skills.c.sha256)
