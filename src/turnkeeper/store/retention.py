"""Retention in the Guardian's database: content erased, sessions taken out, each change a short transaction.

Answers for statements that SQLite and PostgreSQL both understand (`guardian.retention.RetentionStore`), on a
connection of their own. Must never write while it reads a page, nor hold the writer for longer than a page.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from turnkeeper.guardian.approvals import Approval
from turnkeeper.guardian.ports import (
    Archivable,
    ArchivedSession,
    FindingRecord,
    RecordedStep,
    StoredFinding,
    StoreFailed,
    TurnSummary,
    WithContent,
)
from turnkeeper.store.approvals import APPROVAL_COLUMNS, approval_of
from turnkeeper.store.chain_rows import progress_of, terms_of
from turnkeeper.store.chain_schema import SCHEMA_VERSION, check_version, schema_version
from turnkeeper.store.chain_sql import PROGRESS_COLUMNS, TERMS_COLUMNS, TERMS_WIDTH

BUSY_TIMEOUT_MS: Final = 5_000
ROWS_PER_FETCH: Final = 64

_WITH_CONTENT = (
    "SELECT session_id, key_id, erased FROM sessions WHERE created_at_ms < ? AND erased < recorded AND session_id > ?"
    " ORDER BY session_id LIMIT ?"
)
_STEPS = (
    "SELECT recorded, kind, method, request_id, door, turn_id, received_at_ms, decision, error_code, chain_hash,"
    " entry, request, response, request_sha256, response_sha256, decision_log"
    " FROM steps WHERE session_id = ? AND recorded > ? ORDER BY recorded LIMIT ?"
)
_ERASE_STEP = "UPDATE steps SET request = NULL, response = NULL, decision_log = ? WHERE session_id = ? AND recorded = ?"
_ERASE_SUMMARIES = "UPDATE turns SET summary = NULL WHERE session_id = ? AND closed_at <= ?"
_ERASED = "UPDATE sessions SET erased = ? WHERE session_id = ? AND erased < ?"

_COLUMNS = ", ".join(f"s.{name}" for name in f"{TERMS_COLUMNS}, {PROGRESS_COLUMNS}".split(", "))
_CLOSED = (
    f"SELECT {_COLUMNS} FROM sessions s JOIN steps t ON t.session_id = s.session_id AND t.recorded = s.recorded"  # noqa: S608  our own column names
    " WHERE s.closed = ? AND s.created_at_ms < ? AND t.received_at_ms < ? AND s.session_id > ?"
    " ORDER BY s.session_id LIMIT ?"
)
_TURNS = (
    "SELECT turn_id, ordinal, denied, outcome, steps, tool_calls, triggered_by, parent_turn_id, taint_step,"
    " denials, deferrals, summary FROM turns WHERE session_id = ? AND ordinal > ? ORDER BY ordinal LIMIT ?"
)
_FINDINGS = (
    "SELECT id, session_id, recorded, at_ms, code, message, turn_id FROM findings WHERE session_id = ? AND id > ?"
    " ORDER BY id LIMIT ?"
)
_APPROVALS = (
    f"SELECT request_id, {APPROVAL_COLUMNS} FROM approvals WHERE session_id = ? AND request_id > ?"  # noqa: S608  our own column names
    " ORDER BY request_id LIMIT ?"
)
_BURY = (
    "INSERT INTO archived_sessions (session_id, agent_id, key_id, created_at_ms, archived_at_ms, head, recorded,"
    " entries, tool_calls, turns, archive_file, archive_sha256, removed)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)"
)
_TAKE_OUT = "DELETE FROM sessions WHERE session_id = ? AND closed = ? AND recorded = ?"
_BURIED = "SELECT session_id FROM archived_sessions WHERE removed = 0 ORDER BY session_id LIMIT ?"
_REMOVED = "UPDATE archived_sessions SET removed = 1 WHERE session_id = ?"
_REMOVALS: Final = tuple(
    f"DELETE FROM {table} WHERE session_id = ? AND {key} IN"  # noqa: S608  our own names
    f" (SELECT {key} FROM {table} WHERE session_id = ? ORDER BY {key} LIMIT ?)"
    for table, key in (
        ("steps", "recorded"),
        ("nonces", "nonce"),
        ("turns", "ordinal"),
        ("findings", "id"),
        ("lineage", "provenance_id"),
        ("approvals", "request_id"),
    )
)


class Connection(Protocol):
    """What both drivers' connections, and cursors after `execute`, can do; statements have a `?` for each value."""

    def execute(self, statement: str, values: Sequence[object] = (), /) -> Any:
        """Runs a statement; the result has `rowcount` and `fetchall()`."""
        ...


class SqlRetention(ABC):
    """Retention on a database (`RetentionStore`)."""

    @abstractmethod
    def _transaction(self) -> Any:
        """A context manager: a connection inside a transaction that is durable at the end. Raises `StoreFailed`."""

    def with_content(self, before_ms: int, *, after: str, limit: int) -> Sequence[WithContent]:
        """Sessions older than this with rows that have not been erased, by id."""
        return [WithContent(*row) for row in self._fetch(_WITH_CONTENT, before_ms, after, limit)]

    def steps(self, session_id: str, *, after: int, limit: int) -> Sequence[RecordedStep]:
        """What a session recorded, in order."""
        return [RecordedStep(*row) for row in self._fetch(_STEPS, session_id, after, limit)]

    def erase(self, session_id: str, records: Sequence[tuple[int, bytes | None]]) -> None:
        """Erases the content of these rows, and keeps the signed decision of each."""
        last = records[-1][0]
        with self._transaction() as connection:
            for recorded, decision in records:
                connection.execute(_ERASE_STEP, (decision, session_id, recorded))
            connection.execute(_ERASE_SUMMARIES, (session_id, last))
            connection.execute(_ERASED, (last, session_id, last))

    def closed_sessions(self, before_ms: int, *, after: str, limit: int) -> Sequence[Archivable]:
        """Closed sessions whose last row is older than this, by id."""
        rows = self._fetch(_CLOSED, True, before_ms, before_ms, after, limit)
        return [Archivable(terms_of(row[:TERMS_WIDTH]), progress_of(row[TERMS_WIDTH:])) for row in rows]

    def turns(self, session_id: str) -> Iterator[TurnSummary]:
        """A session's turn windows."""
        for row in self._all(_TURNS, session_id, 0, key=1):
            yield TurnSummary(row[0], row[1], bool(row[2]), *row[3:])

    def session_findings(self, session_id: str) -> Iterator[StoredFinding]:
        """A session's findings."""
        for row in self._all(_FINDINGS, session_id, 0):
            yield StoredFinding(row[0], row[1], row[2], row[3], FindingRecord(*row[4:]))

    def session_approvals(self, session_id: str) -> Iterator[Approval]:
        """A session's questions to approvers."""
        for row in self._all(_APPROVALS, session_id, ""):
            yield approval_of(row[1:])

    def bury(self, archived: ArchivedSession) -> bool:
        """Takes the session out of the store, where it is still as it was read."""
        with self._transaction() as connection:
            taken = connection.execute(_TAKE_OUT, (archived.session_id, True, archived.recorded))
            if taken.rowcount != 1:
                return False
            connection.execute(
                _BURY,
                (
                    *(archived.session_id, archived.agent_id, archived.key_id, archived.created_at_ms),
                    *(archived.archived_at_ms, archived.head, archived.recorded, archived.entries),
                    *(archived.tool_calls, archived.turns, archived.archive_file, archived.archive_sha256),
                ),
            )
        return True

    def buried(self, limit: int) -> Sequence[str]:
        """Sessions that were taken out and still have rows."""
        return [str(row[0]) for row in self._fetch(_BURIED, limit)]

    def remove_rows(self, session_id: str, limit: int) -> bool:
        """Removes at most so many rows of each kind; whether any are left."""
        with self._transaction() as connection:
            removed = [connection.execute(query, (session_id, session_id, limit)).rowcount for query in _REMOVALS]
            left = max(removed) == limit
            if not left:
                connection.execute(_REMOVED, (session_id,))
        return left

    def _all(self, query: str, session_id: str, after: object, *, key: int = 0) -> Iterator[tuple[Any, ...]]:
        while page := self._fetch(query, session_id, after, ROWS_PER_FETCH):
            yield from page
            after = page[-1][key]

    @abstractmethod
    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query. Raises `StoreFailed`."""


class SqliteRetention(SqlRetention):
    """Retention on guardian.db. Opens the file for each call, so that nothing is held between two."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def _transaction(self) -> Generator[Connection, None, None]:
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._opened() as connection:
            return connection.execute(query, values).fetchall()

    @contextmanager
    def _opened(self) -> Generator[sqlite3.Connection, None, None]:
        try:
            with closing(_connect(self._path)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise StoreFailed(f"retention could not use the Guardian's store: {error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        # What is erased is overwritten, not only unlinked.
        connection.execute("PRAGMA secure_delete = ON").close()
        _check_current(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_current(connection: sqlite3.Connection, path: Path) -> None:
    check_version(connection)
    if schema_version(connection) < SCHEMA_VERSION:
        raise StoreFailed(
            f"the Guardian's store {path} has an older schema version",
            hint="Start the Guardian once, which migrates it.",
        )
