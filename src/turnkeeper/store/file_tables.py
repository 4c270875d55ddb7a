"""The tables of files, artifacts and their bytes, beside those of `store/tables.py` and in the same metadata.

`contents` and `content_chunks` are used where no folder is shared: on
PostgreSQL. A row of `contents` without a `sha256` is a put that has not ended.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
)

from turnkeeper.store.tables import EscapedText, Instant, metadata

files: Final = Table(
    "files",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
    Column("name", EscapedText, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("deleted_at", Instant),
)

artifacts: Final = Table(
    "artifacts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
    Column("session_id", Text, ForeignKey("sessions.id"), nullable=False),
    Column("turn_id", Text, ForeignKey("turns.id"), nullable=False),
    Column("name", EscapedText, nullable=False),
    Column("path", EscapedText),
    Column("media_type", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("kind", Text, nullable=False),
    # The text itself, where it is one; the bytes of an output are in the content store.
    Column("text", EscapedText),
    Column("created_at", Instant, nullable=False),
    Column("deleted_at", Instant),
    CheckConstraint("kind IN ('output', 'tool_output', 'final_text', 'log')", name="kind_known"),
)

project_storage: Final = Table(
    "project_storage",
    metadata,
    Column("project_id", Text, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)

contents: Final = Table(
    "contents",
    metadata,
    Column("id", Text, primary_key=True),
    Column("sha256", Text, unique=True),
    Column("bytes", BigInteger, nullable=False),
    Column("stored_at", Instant, nullable=False),
)

content_chunks: Final = Table(
    "content_chunks",
    metadata,
    Column("content_id", Text, ForeignKey("contents.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)

Index("ix_files_project_id_id", files.c.project_id, files.c.id)
Index("ix_files_sha256", files.c.sha256)
Index("ix_artifacts_turn_id_id", artifacts.c.turn_id, artifacts.c.id)
Index("ix_artifacts_session_id", artifacts.c.session_id)
Index("ix_artifacts_sha256", artifacts.c.sha256)
