"""guardian.db read beside a running Guardian, for export, verify and the pages that list sessions.

Answers for reads alone: the file is opened read-only, so nothing here can change the chain. Every list has a limit or
is an iterator.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.ports import (
    ExportRow,
    FindingRecord,
    SessionSummary,
    StoredEntry,
    StoredFinding,
    StoreFailed,
    TurnSummary,
)
from turnkeeper.store.chain import BUSY_TIMEOUT_MS
from turnkeeper.store.chain_rows import progress_of
from turnkeeper.store.chain_schema import SCHEMA_VERSION, check_version, schema_version

# A row of `steps` holds two bodies.
STEPS_PER_FETCH: Final = 16
ROWS_PER_FETCH: Final = 200

_SESSIONS = (
    "SELECT session_id, agent_id, key_id, created_at_ms, head, recorded, entries, tool_calls, turns, closed,"
    " turn_window, standing, kept"
    " FROM sessions WHERE session_id > ? ORDER BY session_id LIMIT ?"
)
_ROWS = (
    "SELECT recorded, request, response, entry, turn_id, request_sha256, response_sha256"
    " FROM steps WHERE session_id = ? AND recorded > ? ORDER BY recorded LIMIT ?"
)
_TURNS = (
    "SELECT turn_id, ordinal, denied, outcome, steps, tool_calls, triggered_by, parent_turn_id, taint_step,"
    " denials, deferrals, summary"
    " FROM turns WHERE session_id = ? AND ordinal > ? ORDER BY ordinal LIMIT ?"
)
_ONE_SESSION = _SESSIONS.replace("session_id > ? ORDER BY session_id LIMIT ?", "session_id = ?")
_ENTRIES = (
    "SELECT recorded, request_id, decision, received_at_ms, entry FROM steps"
    " WHERE session_id = ? AND recorded > ? AND entry IS NOT NULL ORDER BY recorded LIMIT ?"
)
_REQUEST = "SELECT request FROM steps WHERE session_id = ? AND request_id = ?"
_FINDINGS = (
    "SELECT id, session_id, recorded, at_ms, code, message, turn_id"
    " FROM findings WHERE id > ? AND (?2 IS NULL OR session_id = ?2) ORDER BY id LIMIT ?3"
)


class SqliteChainReader:
    """The readable side of guardian.db (`ChainReader`); a context manager."""

    def __init__(self, path: Path) -> None:
        """Opens the file. Raises `StoreFailed`, `SchemaTooNew`."""
        self._connection = _open(path)

    def __enter__(self) -> "SqliteChainReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; idempotent."""
        self._connection.close()

    def sessions(self, *, after: str = "", limit: int) -> Sequence[SessionSummary]:
        """Sessions by id, a page at a time."""
        return [_summary(row) for row in self._fetch(_SESSIONS, after, limit)]

    def session(self, session_id: str) -> SessionSummary | None:
        """One session."""
        rows = self._fetch(_ONE_SESSION, session_id)
        return _summary(rows[0]) if rows else None

    def entries(self, session_id: str, *, after: int, limit: int) -> Sequence[StoredEntry]:
        """A session's entries in the order of its chain; `after` is the number of the last one seen."""
        return [StoredEntry(*row) for row in self._fetch(_ENTRIES, session_id, after, limit)]

    def turn_page(self, session_id: str, *, after: int, limit: int) -> Sequence[TurnSummary]:
        """A session's turn windows in order; `after` is the ordinal of the last one seen."""
        rows = self._fetch(_TURNS, session_id, after, limit)
        return [TurnSummary(row[0], row[1], bool(row[2]), *row[3:]) for row in rows]

    def request(self, session_id: str, request_id: str) -> bytes | None:
        """A request as it was received; None where there is none, or its content is erased."""
        rows = self._fetch(_REQUEST, session_id, request_id)
        return rows[0][0] if rows else None

    def rows(self, session_id: str) -> Iterator[ExportRow]:
        """What a session recorded, in order."""
        after = 0
        while page := self._fetch(_ROWS, session_id, after, STEPS_PER_FETCH):
            yield from (ExportRow(*row) for row in page)
            after = int(page[-1][0])

    def turns(self, session_id: str) -> Iterator[TurnSummary]:
        """A session's turn windows, in order."""
        after = 0
        while page := self._fetch(_TURNS, session_id, after, ROWS_PER_FETCH):
            yield from (TurnSummary(row[0], row[1], bool(row[2]), *row[3:]) for row in page)
            after = int(page[-1][1])

    def findings(self, session_id: str | None = None, *, after: int = 0, limit: int) -> Sequence[StoredFinding]:
        """Findings in the order they were made, of one session or of all; `after` is the `id` of the last one seen."""
        return [
            StoredFinding(row[0], row[1], row[2], row[3], FindingRecord(*row[4:]))
            for row in self._fetch(_FINDINGS, after, session_id, limit)
        ]

    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreFailed(f"the Guardian's store could not be read: {error}") from error


def _summary(row: Sequence[Any]) -> SessionSummary:
    return SessionSummary(row[0], row[1], row[2], row[3], progress_of(row[4:]))


def _open(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None
        )
    except sqlite3.Error as error:
        raise StoreFailed(f"the Guardian's store {path} cannot be opened: {error}") from error
    try:
        check_version(connection)
        found = schema_version(connection)
    except (sqlite3.Error, TurnkeeperError) as error:
        connection.close()
        if isinstance(error, TurnkeeperError):
            raise
        raise StoreFailed(f"{path} is no Guardian's store: {error}") from error
    if found < SCHEMA_VERSION:
        connection.close()
        raise StoreFailed(
            f"the Guardian's store {path} has the older schema version {found}",
            hint="Start the Guardian once, which migrates it.",
        )
    return connection
