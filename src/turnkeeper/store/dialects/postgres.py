"""PostgreSQL: a pool of threads with psycopg, row locks on the session, reads from one snapshot."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from turnkeeper.clock import from_epoch_ms
from turnkeeper.store.dialects.engines import Engines

WRITER_THREADS: Final = 8
READER_THREADS: Final = 8
LOCK_TIMEOUT_MS: Final = 10_000
STATEMENT_TIMEOUT_MS: Final = 30_000
CONNECT_TIMEOUT_S: Final = 10
IDLE_IN_TRANSACTION_MS: Final = 5_000
"""How long a process may stand still in a transaction: whoever waits for its locks goes on then, and it starts anew."""
KEEPALIVE_IDLE_S: Final = 5
KEEPALIVE_INTERVAL_S: Final = 2
KEEPALIVE_TRIES: Final = 3
"""After these a connection whose other end has vanished counts as cut, here and at the server."""
UNANSWERED_MS: Final = 15_000
"""How long what was sent may stay without a sign of life from the other end's network."""
NOTICE_LOST_SERVER: Final = {
    "keepalives_idle": KEEPALIVE_IDLE_S,
    "keepalives_interval": KEEPALIVE_INTERVAL_S,
    "keepalives_count": KEEPALIVE_TRIES,
    "tcp_user_timeout": UNANSWERED_MS,
}
"""For libpq: a cable that is cut sends no word, and the kernel would wait a quarter of an hour for one."""
NOTICE_LOST_CLIENTS: Final = {
    "tcp_keepalives_idle": KEEPALIVE_IDLE_S,
    "tcp_keepalives_interval": KEEPALIVE_INTERVAL_S,
    "tcp_keepalives_count": KEEPALIVE_TRIES,
    "tcp_user_timeout": UNANSWERED_MS,
}
"""For the server: what a vanished process has locked is free again, its name as a worker too. Sockets ignore it."""
_SCHEMA_LOCK: Final = 0x7475726E
"""The advisory lock of whoever changes the tables; any constant that nobody else uses."""

_DEADLOCK: Final = "40P01"
_SERIALIZATION: Final = "40001"
_LOCK_NOT_AVAILABLE: Final = "55P03"
_STOOD_STILL: Final = "25P03"
"""This process did, in a transaction (`IDLE_IN_TRANSACTION_MS`): the server has undone it whole."""
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
        read_clock=_read_clock,
        migrates_at_open=False,
    )


def _engine(url: URL, threads: int, isolation: Any) -> Engine:
    wanted = {
        "lock_timeout": LOCK_TIMEOUT_MS,
        "statement_timeout": STATEMENT_TIMEOUT_MS,
        "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_MS,
        "timezone": "UTC",
        **NOTICE_LOST_CLIENTS,
    }
    return create_engine(
        url,
        poolclass=QueuePool,
        pool_size=threads,
        max_overflow=0,
        pool_pre_ping=True,
        isolation_level=isolation,
        connect_args={
            "options": server_options(wanted),
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "turnkeeper",
            **NOTICE_LOST_SERVER,
        },
    )


def server_options(settings: Mapping[str, object]) -> str:
    """Settings of the server as a connection asks for them."""
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


def _is_transient(error: DBAPIError) -> bool:
    return getattr(error.orig, "sqlstate", None) in {_DEADLOCK, _SERIALIZATION, _STOOD_STILL}


def _lock_schema(connection: Connection) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})


def _read_clock(connection: Connection) -> datetime:
    told = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
    return from_epoch_ms(connection.execute(told).scalar_one())


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
