"""Runs transaction bodies in threads: one thread that writes on SQLite, a pool on PostgreSQL.

A body is a synchronous function of a connection. It is the whole transaction: what it returns is committed, what it
raises is rolled back. A body may be run again when the database asks for it, so it must do nothing but SQL.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final, TypeVar

from sqlalchemy import Connection, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from turnkeeper.errors import TurnkeeperError
from turnkeeper.store.dialects.engines import Engines
from turnkeeper.store.dialects.postgres import open_postgres
from turnkeeper.store.dialects.sqlite import open_sqlite
from turnkeeper.turns.ports import StoreUnavailable

MAX_TRIES: Final = 5
MAX_WAITING: Final = 2_000
"""How many transactions may wait for a thread."""

T = TypeVar("T")


class StoreOverloaded(TurnkeeperError):
    """More transactions wait than the store takes."""

    code = "overloaded"


class StoreUrlInvalid(TurnkeeperError):
    """The store's URL names no database that is known here."""

    code = "store_url_invalid"


def open_engines(url: str, *, read_only: bool = False) -> Engines:
    """The database behind `sqlite:////path` or `postgresql+psycopg://…`. Raises `StoreUrlInvalid`.

    With `read_only` a file of SQLite is neither made nor changed, whatever is asked of it.
    """
    try:
        parsed = make_url(url)
    except SQLAlchemyError as error:
        raise StoreUrlInvalid("the store's URL is malformed") from error
    if parsed.drivername == "sqlite" and parsed.database and parsed.database != ":memory:":
        return open_sqlite(parsed, read_only=read_only)
    if parsed.drivername in {"postgresql", "postgresql+psycopg"}:
        return open_postgres(parsed.set(drivername="postgresql+psycopg"))
    raise StoreUrlInvalid(
        f"{parsed.drivername} is not a store", hint="Use sqlite:////path/to/file or postgresql+psycopg://…"
    )


class Database:
    """An open database. Every method is one transaction; `close` waits for those that run."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._writers = ThreadPoolExecutor(engines.writer_threads, "store-write")
        self._readers = ThreadPoolExecutor(engines.reader_threads, "store-read")
        self._waiting = 0

    async def write(self, body: Callable[[Connection], T], committed: Callable[[], None]) -> T:
        """What `body` returns, once it is committed. `committed` is called from the thread, also if nobody waits.

        Raises what `body` raises, `StoreUnavailable` and `StoreOverloaded`.
        """
        return await self._run(self._writers, lambda: self._write(body, committed))

    async def read(self, body: Callable[[Connection], T]) -> T:
        """What `body` reads, from one snapshot. Raises as `write` does."""
        return await self._run(self._readers, lambda: self._read(body))

    async def prepare(self, work: Callable[[], None]) -> None:
        """Runs `work` in a thread that writes, before anything else does. Raises `StoreUnavailable`."""

        def guarded() -> None:
            try:
                work()
            except (OperationalError, InterfaceError) as error:
                raise _unavailable(error) from error

        await self._run(self._writers, guarded)

    def lock_name(self, connection: Connection, name: str, wait_ms: int) -> bool:
        """Takes a name until the end of the transaction, waiting so long; whether it could. If not, roll back."""
        return self._engines.lock_name(connection, name, wait_ms)

    def read_clock(self, connection: Connection) -> datetime:
        """The database's own time."""
        return self._engines.read_clock(connection)

    async def close(self) -> None:
        """Waits for running transactions and closes every connection."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writers.shutdown()
        self._readers.shutdown()
        self._engines.dispose()

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise StoreOverloaded(f"{self._waiting} transactions wait for the store")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        finally:
            self._waiting -= 1

    def _write(self, body: Callable[[Connection], T], committed: Callable[[], None]) -> T:
        for left in range(MAX_TRIES - 1, -1, -1):
            try:
                with self._engines.writer.begin() as connection:
                    result = body(connection)
            except DBAPIError as error:
                self._again_or_raise(error, left)
                continue
            committed()
            return result
        raise AssertionError("the last try either returned or raised")

    def _read(self, body: Callable[[Connection], T]) -> T:
        for left in range(MAX_TRIES - 1, -1, -1):
            try:
                with self._engines.reader.begin() as connection:
                    return body(connection)
            except DBAPIError as error:
                self._again_or_raise(error, left)
        raise AssertionError("the last try either returned or raised")

    def _again_or_raise(self, error: DBAPIError, left: int) -> None:
        if left and self._engines.is_transient(error):
            return
        if isinstance(error, (OperationalError, InterfaceError)):
            raise _unavailable(error) from error
        raise error


def _unavailable(error: DBAPIError) -> StoreUnavailable:
    # The text of the driver may hold parameters, so only its kind is told.
    return StoreUnavailable(f"the turn store cannot answer: {type(error.orig).__name__}")
