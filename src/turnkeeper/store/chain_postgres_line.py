"""A connection to PostgreSQL that is made when it is needed, and again after it broke.

Answers for one caller at a time and for a second try of what changes nothing: a server that was restarted since the
last question costs nobody an answer.
"""

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

import psycopg

from turnkeeper.store.chain_postgres_link import AnswerTimedOut, Connection, is_lost

_Result = TypeVar("_Result")


class Line:
    """Any thread may use it, one at a time."""

    def __init__(self, make: Callable[[], Connection]) -> None:
        self._make = make
        self._connection: Connection | None = None
        self._using = Lock()

    def open(self) -> None:
        """Connects now. Raises what making the connection raises."""
        with self._using:
            self._connected()

    def close(self) -> None:
        """Closes the connection; idempotent, and the next call makes another."""
        with self._using:
            self._drop()

    def ask(self, body: Callable[[Connection], _Result]) -> _Result:
        """What a body reads, which may be run twice. Raises `psycopg.Error`."""
        with self._using:
            fresh = self._connection is None
            try:
                return self._run(body)
            except psycopg.Error as error:
                if fresh or self._connection is not None or isinstance(error, AnswerTimedOut):
                    raise
            return self._run(body)

    def _run(self, body: Callable[[Connection], _Result]) -> _Result:
        connection = self._connected()
        try:
            return body(connection)
        finally:
            if is_lost(connection):
                self._drop()

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._make()
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
