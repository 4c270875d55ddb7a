"""PostgreSQL: a pool of threads with psycopg, row locks on the session, reads from one snapshot."""

from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from turnkeeper.store.dialects.engines import Engines

WRITER_THREADS: Final = 8
READER_THREADS: Final = 8
LOCK_TIMEOUT_MS: Final = 10_000
STATEMENT_TIMEOUT_MS: Final = 30_000
CONNECT_TIMEOUT_S: Final = 10
_SCHEMA_LOCK: Final = 0x7475726E
"""The advisory lock of whoever changes the tables; any constant that nobody else uses."""

_DEADLOCK: Final = "40P01"
_SERIALIZATION: Final = "40001"
_LOCK_NOT_AVAILABLE: Final = "55P03"
_NAME: Final = "hashtextextended(:name, 0)"


def open_postgres(url: URL) -> Engines:
    """The server behind `url`. Connections are made when they are needed."""
    writer = _engine(url, WRITER_THREADS, "READ COMMITTED")
    reader = _engine(url, READER_THREADS, "REPEATABLE READ").execution_options(postgresql_readonly=True)
    return Engines(
        writer=writer,
        reader=reader,
        migrator=writer,
        writer_threads=WRITER_THREADS,
        reader_threads=READER_THREADS,
        is_transient=_is_transient,
        lock_schema=_lock_schema,
        lock_name=_lock_name,
        migrates_at_open=False,
    )


def _engine(url: URL, threads: int, isolation: Any) -> Engine:
    options = f"-c lock_timeout={LOCK_TIMEOUT_MS} -c statement_timeout={STATEMENT_TIMEOUT_MS} -c timezone=UTC"
    return create_engine(
        url,
        poolclass=QueuePool,
        pool_size=threads,
        max_overflow=0,
        pool_pre_ping=True,
        isolation_level=isolation,
        connect_args={"options": options, "connect_timeout": CONNECT_TIMEOUT_S, "application_name": "turnkeeper"},
    )


def _is_transient(error: DBAPIError) -> bool:
    return getattr(error.orig, "sqlstate", None) in {_DEADLOCK, _SERIALIZATION}


def _lock_schema(connection: Connection) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})


def _lock_name(connection: Connection, name: str, wait_ms: int) -> bool:
    named = {"name": name}
    if connection.execute(text(f"SELECT pg_try_advisory_xact_lock({_NAME})"), named).scalar_one():
        return True
    try:
        connection.execute(text(f"SET LOCAL lock_timeout = {int(wait_ms)}"))
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_NAME})"), named)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
            return False
        raise
    connection.execute(text(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}"))
    return True
