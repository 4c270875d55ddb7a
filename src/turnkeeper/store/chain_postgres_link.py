"""Connections to the Guardian's PostgreSQL: how they are made, what they are asked, how long they may take.

Answers for a bound on every wait, for texts that PostgreSQL cannot hold as they are, and for errors that name neither
password nor values. Knows nothing of what is stored.
"""

import re
from collections.abc import Generator
from functools import cache
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format

from turnkeeper.guardian.ports import StoreFailed
from turnkeeper.store.guardian_refusals import GuardianUrlInvalid

SCHEMA: Final = "turnkeeper_guardian"
"""The Guardian's tables have a schema of their own: the turn store may live in the same database."""
CONNECT_TIMEOUT_S: Final = 3
STATEMENT_TIMEOUT_MS: Final = 4_000
ANSWER_TIMEOUT_MS: Final = 4_500
"""How long a server that says nothing is waited for; just above what the server itself allows a statement."""
READ_TIMEOUT_MS: Final = 30_000
KEEPALIVE_IDLE_S: Final = 10
KEEPALIVE_INTERVAL_S: Final = 5
KEEPALIVE_COUNT: Final = 3

_ESCAPE: Final = "\x1a"
_T = TypeVar("_T")


class AnswerTimedOut(psycopg.OperationalError):
    """A server that says nothing; asking again at once would take as long."""


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that gives up on a server that does not answer. Broken is then what it is."""

    answer_timeout_ms: int = ANSWER_TIMEOUT_MS

    def wait(self, gen: PQGen[_T], interval: float = 0.1, timeout: float | None = None) -> _T:
        """What psycopg waits for, within the time that there is. Raises `AnswerTimedOut`."""
        limit_s = self.answer_timeout_ms / 1000 if timeout is None else timeout
        return super().wait(_until(gen, monotonic() + limit_s), interval)


Connection: TypeAlias = PatientConnection


class _Text(Dumper):
    # PostgreSQL has no NUL in a text. What has none, and no escape, is stored as it is.
    def dump(self, obj: str) -> bytes:
        if _ESCAPE in obj or "\0" in obj:
            obj = obj.replace(_ESCAPE, _ESCAPE + "1").replace("\0", _ESCAPE + "0")
        return obj.encode()


class _TextBack(Loader):
    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        if _ESCAPE in text:
            text = text.replace(_ESCAPE + "0", "\0").replace(_ESCAPE + "1", _ESCAPE)
        return text


class _Number(Dumper):
    # Without a type of its own, a value has its column's: one prepared statement serves small and large ones, and none.
    def dump(self, obj: int) -> bytes:
        return b"%d" % obj


class _Bytes(Dumper):
    format = Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return obj


def connect(url: str, *, purpose: str, read_only: bool = False) -> Connection:
    """A connection in autocommit mode, set up for the Guardian's tables. Raises `psycopg.Error`."""
    connection = PatientConnection.connect(
        libpq_url(url),
        autocommit=True,
        prepare_threshold=2,
        connect_timeout=CONNECT_TIMEOUT_S,
        application_name=f"turnkeeper {purpose}",
        client_encoding="utf8",
        keepalives_idle=KEEPALIVE_IDLE_S,
        keepalives_interval=KEEPALIVE_INTERVAL_S,
        keepalives_count=KEEPALIVE_COUNT,
    )
    try:
        _set_up(connection, read_only=read_only)
    except BaseException:
        connection.close()
        raise
    return connection


def libpq_url(url: str) -> str:
    """The URL as libpq reads it. Raises `GuardianUrlInvalid`, which does not repeat it."""
    plain = re.sub(r"^postgresql\+psycopg:", "postgresql:", url)
    try:
        conninfo_to_dict(plain)
    except psycopg.ProgrammingError:
        # The driver's sentence quotes the URL, and a URL may hold a password.
        raise GuardianUrlInvalid("the URL of the Guardian's store is malformed") from None
    return plain


def fetch(connection: Connection, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
    """All rows of a query with a `?` for each value. Raises `psycopg.Error`."""
    with psycopg.RawCursor(connection) as cursor:
        return cursor.execute(numbered(query), values).fetchall()


@cache
def numbered(statement: str) -> bytes:
    """A statement of ours as PostgreSQL wants it: `$1`, `$2` and so on for each `?`."""
    parts = statement.split("?")
    return "".join(f"{part}${number}" for number, part in enumerate(parts[:-1], start=1)).encode() + parts[-1].encode()


def failure(what: str, error: psycopg.Error) -> StoreFailed:
    """The error as the Guardian knows it: the server's sentence without its detail, which would quote values."""
    said = error.diag.message_primary or (_first_line(error) if error.sqlstate is None else None)
    return StoreFailed(f"{what}: {said or type(error).__name__}")


def is_lost(connection: psycopg.Connection[Any]) -> bool:
    """Whether the connection is of no more use."""
    return connection.closed or connection.broken


def _first_line(error: psycopg.Error) -> str:
    # libpq's own sentences name host, port and user, and never a password.
    return str(error).partition("\n")[0]


def _set_up(connection: Connection, *, read_only: bool) -> None:
    connection.adapters.register_dumper(str, _Text)
    connection.adapters.register_dumper(int, _Number)
    connection.adapters.register_dumper(bytes, _Bytes)
    connection.adapters.register_loader("text", _TextBack)
    limit_ms = READ_TIMEOUT_MS if read_only else STATEMENT_TIMEOUT_MS
    wanted = {
        "search_path": SCHEMA,
        "synchronous_commit": "on",
        "statement_timeout": str(limit_ms),
        "lock_timeout": str(limit_ms),
        "idle_in_transaction_session_timeout": str(READ_TIMEOUT_MS),
        "default_transaction_read_only": "on" if read_only else "off",
    }
    chosen = ", ".join(["set_config(%s, %s, false)"] * len(wanted))
    connection.execute(f"SELECT {chosen}".encode(), [word for pair in wanted.items() for word in pair])
    if read_only:
        connection.answer_timeout_ms = READ_TIMEOUT_MS
    if connection.info.parameter_status("server_encoding") != "UTF8":
        raise psycopg.NotSupportedError("the database's encoding is not UTF8, so not every text fits into it")


def _until(gen: PQGen[_T], deadline: float) -> Generator[Any, Any, _T]:
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if monotonic() > deadline:
                raise AnswerTimedOut("the server did not answer in time")
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value
