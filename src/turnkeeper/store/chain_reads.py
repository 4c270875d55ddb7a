"""What may be read of a Guardian's database beside the Guardian that writes it, whichever database it is.

Answers for reads alone. Every list has a limit or is an iterator.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self

from turnkeeper.guardian.ports import (
    ArchivedSession,
    ExportRow,
    FindingRecord,
    SessionSummary,
    StoredEntry,
    StoredFinding,
    TurnSummary,
)
from turnkeeper.store.chain_rows import progress_of

# A row of `steps` holds two bodies.
STEPS_PER_FETCH: Final = 16
ROWS_PER_FETCH: Final = 200

_SESSIONS = (
    "SELECT session_id, agent_id, key_id, created_at_ms, head, recorded, entries, tool_calls, turns, closed,"
    " turn_window, standing, kept"
    " FROM sessions WHERE session_id > ? ORDER BY session_id LIMIT ?"
)
_ROWS = (
    "SELECT recorded, request, response, entry, turn_id, request_sha256, response_sha256, decision_log"
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
_ARCHIVED = (
    "SELECT session_id, agent_id, key_id, created_at_ms, archived_at_ms, head, recorded, entries, tool_calls, turns,"
    " archive_file, archive_sha256 FROM archived_sessions WHERE session_id > ? ORDER BY session_id LIMIT ?"
)
_ONE_ARCHIVED = _ARCHIVED.replace("session_id > ? ORDER BY session_id LIMIT ?", "session_id = ?")
_FINDINGS = (
    "SELECT id, session_id, recorded, at_ms, code, message, turn_id"
    " FROM findings WHERE id > ? AND session_id = coalesce(?, session_id) ORDER BY id LIMIT ?"
)


class ChainReads(ABC):
    """The readable side of a Guardian's database (`ChainReader`); a context manager. Reads raise `StoreFailed`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Gives the database back; idempotent."""

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

    def archived(self, *, after: str = "", limit: int) -> Sequence[ArchivedSession]:
        """Sessions that have left for an archive, by id, a page at a time."""
        return [ArchivedSession(*row) for row in self._fetch(_ARCHIVED, after, limit)]

    def archived_session(self, session_id: str) -> ArchivedSession | None:
        """One of those."""
        rows = self._fetch(_ONE_ARCHIVED, session_id)
        return ArchivedSession(*rows[0]) if rows else None

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

    @abstractmethod
    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query with a `?` for each value."""


def _summary(row: Sequence[Any]) -> SessionSummary:
    return SessionSummary(row[0], row[1], row[2], row[3], progress_of(row[4:]))
