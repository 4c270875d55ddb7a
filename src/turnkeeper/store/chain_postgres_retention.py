"""Retention on a Guardian's PostgreSQL, on a connection of its own beside the Guardian that writes."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from turnkeeper.store.chain_postgres_desk import connect_current
from turnkeeper.store.chain_postgres_link import Connection, failure, numbered
from turnkeeper.store.retention import SqlRetention


class PostgresRetention(SqlRetention):
    """Retention on PostgreSQL. Connects for each call, so that nothing is held between two."""

    def __init__(self, url: str) -> None:
        self._url = url

    @contextmanager
    def _transaction(self) -> Generator["_Statements", None, None]:
        try:
            with connect_current(self._url, read_only=False) as connection, connection.transaction():
                yield _Statements(connection)
        except psycopg.Error as error:
            raise failure("the Guardian's store could not be changed", error) from error

    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            with connect_current(self._url, read_only=True) as connection:
                return _Statements(connection).execute(query, values).fetchall()
        except psycopg.Error as error:
            raise failure("the Guardian's store could not be read", error) from error


class _Statements:
    """A connection that takes a `?` for each value (`retention.Connection`)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[object] = (), /) -> psycopg.RawCursor[tuple[Any, ...]]:
        """Runs a statement. Raises `psycopg.Error`."""
        return psycopg.RawCursor(self._connection).execute(numbered(statement), values)
