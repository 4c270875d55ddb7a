"""A Guardian's PostgreSQL read and decided on beside the Guardian that writes it.

Answers for reads that can change nothing and for the answers of approvers. Takes no lock of the Guardian's.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import psycopg

from turnkeeper.store.chain_postgres_line import Line
from turnkeeper.store.chain_postgres_link import Connection, connect, failure, fetch, numbered
from turnkeeper.store.chain_postgres_schema import require_current
from turnkeeper.store.chain_reads import ChainReads
from turnkeeper.store.guardian_desk import GuardianDesk

_Fetch: TypeAlias = Callable[..., list[tuple[Any, ...]]]


class PostgresChainReader(ChainReads):
    """The readable side of a Guardian's database (`ChainReader`); a context manager."""

    def __init__(self, url: str) -> None:
        """Connects. Raises `StoreFailed`, `SchemaTooNew`, `GuardianUrlInvalid`."""
        self._line = Line(partial(connect_current, url, read_only=True))
        try:
            self._line.open()
        except psycopg.Error as error:
            raise failure("the Guardian's store cannot be opened", error) from error

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self._line.close()

    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return _ask(self._line, query, values)


class PostgresGuardianDesk(GuardianDesk):
    """The desk over PostgreSQL, on one connection that is made when it is needed."""

    def __init__(self, url: str) -> None:
        self._line = Line(partial(connect_current, url, read_only=False))

    def close(self) -> None:
        """Closes the connection; the next call makes another."""
        self._line.close()

    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return _ask(self._line, query, values)

    def _change(self, statement: str, *values: object) -> int:
        def run(connection: Connection) -> int:
            with psycopg.RawCursor(connection) as cursor:
                return cursor.execute(numbered(statement), values).rowcount

        try:
            return self._line.tell(run)
        except psycopg.Error as error:
            raise failure("the Guardian's store could not be changed", error) from error

    def _reader(self) -> ChainReads:
        return _Borrowed(self._fetch)


class _Borrowed(ChainReads):
    """Reads over a connection that somebody else closes."""

    def __init__(self, fetch_rows: _Fetch) -> None:
        self._rows = fetch_rows

    def close(self) -> None:
        """Nothing to give back."""

    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._rows(query, *values)


def _ask(line: Line, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
    try:
        return line.ask(lambda connection: fetch(connection, query, values))
    except psycopg.Error as error:
        raise failure("the Guardian's store could not be read", error) from error


def connect_current(url: str, *, read_only: bool) -> Connection:
    """A connection to tables of this program's version. Raises `psycopg.Error`, `StoreFailed`, `SchemaTooNew`."""
    connection = connect(url, purpose="guardian desk", read_only=read_only)
    try:
        require_current(connection)
    except BaseException:
        connection.close()
        raise
    return connection
