"""SQLite: one writer, readers beside it, every commit on the disk before it is told.

One process-wide writer thread runs `BEGIN IMMEDIATE` transactions; other processes on the same file wait for at most
`BUSY_TIMEOUT_MS`. Nothing newer than SQLite 3.35 is used.
"""

import os
from datetime import datetime
from pathlib import Path
from sqlite3 import Connection as SqliteConnection
from sqlite3 import connect
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from turnkeeper.clock import from_epoch_ms
from turnkeeper.store.dialects.engines import Engines

BUSY_TIMEOUT_MS: Final = 5_000
READER_THREADS: Final = 4
FILE_MODE: Final = 0o600


def open_sqlite(url: URL, *, read_only: bool = False) -> Engines:
    """The file behind `url`, made with mode 600 if it is not there; `read_only` neither makes nor changes one."""
    if read_only:
        return _read_only(url)
    _make_private(Path(str(url.database)))
    return Engines(
        writer=_engine(url, threads=1, begin="BEGIN IMMEDIATE", read_only=False),
        reader=_engine(url, threads=READER_THREADS, begin="BEGIN", read_only=True),
        # A table that is made anew is dropped once, and its rows must not count as gone meanwhile.
        migrator=_engine(url, threads=1, begin="BEGIN IMMEDIATE", read_only=False, foreign_keys=False),
        writer_threads=1,
        reader_threads=READER_THREADS,
        is_transient=_is_transient,
        lock_schema=_locked_already,
        lock_name=_named_already,
        read_clock=_read_clock,
        migrates_at_open=True,
    )


def _read_only(url: URL) -> Engines:
    location = f"{Path(str(url.database)).absolute().as_uri()}?mode=ro"

    def connected() -> SqliteConnection:
        return connect(
            location, uri=True, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
        )

    engine = create_engine(url, poolclass=QueuePool, pool_size=READER_THREADS, max_overflow=0, creator=connected)
    event.listen(engine, "begin", _begin_reading)
    return Engines(
        writer=engine,
        reader=engine,
        migrator=engine,
        writer_threads=1,
        reader_threads=READER_THREADS,
        is_transient=_is_transient,
        lock_schema=_locked_already,
        lock_name=_named_already,
        read_clock=_read_clock,
        migrates_at_open=False,
    )


def _begin_reading(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _make_private(path: Path) -> None:
    # SQLite gives its -wal and -shm files the mode of the database file.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    os.close(descriptor)


def _engine(url: URL, *, threads: int, begin: str, read_only: bool, foreign_keys: bool = True) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=threads,
        max_overflow=0,
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
    )

    def on_connect(connection: SqliteConnection, _record: Any) -> None:
        # The driver's own idea of transactions would begin them late, and as readers.
        connection.isolation_level = None
        for pragma in _pragmas(read_only=read_only, foreign_keys=foreign_keys):
            connection.execute(f"PRAGMA {pragma}").close()

    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    return engine


def _pragmas(*, read_only: bool, foreign_keys: bool) -> tuple[str, ...]:
    checked = f"foreign_keys={'ON' if foreign_keys else 'OFF'}"
    shared = (f"busy_timeout={BUSY_TIMEOUT_MS}", "journal_mode=WAL", "synchronous=FULL", checked)
    return (*shared, "query_only=ON") if read_only else shared


def _is_transient(error: DBAPIError) -> bool:
    return False


def _locked_already(connection: Connection) -> None:
    """`BEGIN IMMEDIATE` is the lock."""


def _read_clock(connection: Connection) -> datetime:
    """That of the machine, which all processes on one file share."""
    told = connection.exec_driver_sql("SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)")
    return from_epoch_ms(told.scalar_one())


def _named_already(connection: Connection, name: str, wait_ms: int) -> bool:
    """`BEGIN IMMEDIATE` is the lock of every name."""
    return True
