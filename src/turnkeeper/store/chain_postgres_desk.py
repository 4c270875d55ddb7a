"""A Guardian's PostgreSQL read and decided on beside the Guardian that writes it.

Answers for reads that can change nothing and for the answers of approvers. Takes no lock of the Guardian's.
"""

from functools import partial
from typing import Any

import psycopg

from turnkeeper.store.chain_postgres_line import Line
from turnkeeper.store.chain_postgres_link import Connection, connect, failure, fetch, numbered
from turnkeeper.store.chain_postgres_schema import require_current
from turnkeeper.store.chain_reads import ChainReads
from turnkeeper.store.guardian_desk import GuardianDesk


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
        try:
            return self._line.ask(lambda connection: fetch(connection, query, values))
        except psycopg.Error as error:
            raise failure("the Guardian's store could not be read", error) from error


class PostgresGuardianDesk(GuardianDesk):
    """The desk over PostgreSQL. Connects for each call, so that any thread may use it and nothing is held between."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            with connect_current(self._url, read_only=True) as connection:
                return fetch(connection, query, values)
        except psycopg.Error as error:
            raise failure("the Guardian's store could not be read", error) from error

    def _change(self, statement: str, *values: object) -> int:
        try:
            with connect_current(self._url, read_only=False) as connection, psycopg.RawCursor(connection) as cursor:
                return cursor.execute(numbered(statement), values).rowcount
        except psycopg.Error as error:
            raise failure("the Guardian's store could not be changed", error) from error

    def _reader(self) -> ChainReads:
        return PostgresChainReader(self._url)


def connect_current(url: str, *, read_only: bool) -> Connection:
    """A connection to tables of this program's version. Raises `psycopg.Error`, `StoreFailed`, `SchemaTooNew`."""
    connection = connect(url, purpose="guardian desk", read_only=read_only)
    try:
        require_current(connection)
    except BaseException:
        connection.close()
        raise
    return connection
