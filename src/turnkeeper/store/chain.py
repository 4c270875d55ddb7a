"""guardian.db: the Guardian's sessions, chain, replay memory, turn windows and signed answers on raw SQLite.

Answers for one durable commit per batch (WAL, `synchronous=FULL`) and for point reads. Must never report a batch as
durable that is not, nor let a session use one request_id or nonce twice: UNIQUE constraints stand behind the
Guardian's own memory. One thread commits; loads may come from another.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.approvals import Approval
from turnkeeper.guardian.memory import Kept, parse_memory, parse_window, render_kept, render_standing, render_window
from turnkeeper.guardian.ports import (
    Record,
    RecordedAnswer,
    SessionProgress,
    SessionTerms,
    StepRecord,
    StoredSession,
    StoreFailed,
    UsedBefore,
)
from turnkeeper.guardian.provenance import MAX_PROVENANCE_IDS, KnownDatum
from turnkeeper.store.approvals import INSERT_APPROVAL, SELECT_OF_STEP, USE_APPROVAL, approval_of, approval_row
from turnkeeper.store.chain_schema import migrate

BUSY_TIMEOUT_MS: Final = 5_000
WAL_AUTOCHECKPOINT_PAGES: Final = 2_000
WAL_SIZE_LIMIT_BYTES: Final = 64 * 1024 * 1024
TERMS_WIDTH: Final = 12

Row: TypeAlias = tuple[object, ...]
Values: TypeAlias = Iterable[Row]
_Result = TypeVar("_Result")

_PROGRESS_COLUMNS = "head, recorded, entries, tool_calls, turns, closed, turn_window, standing, kept"
_TERMS_COLUMNS = (
    "session_id, key_id, agent_id, acs_version, skew_window_ms, methods, hello_hash, server_hello, created_at_ms,"
    " provenance_producer, profiles, mcp_versions"
)
_INSERT_SESSION = f"INSERT INTO sessions ({_TERMS_COLUMNS}, {_PROGRESS_COLUMNS}) VALUES ({', '.join('?' * 21)})"  # noqa: S608  our own column names
_UPDATE_SESSION = (
    "UPDATE sessions SET head = ?, recorded = ?, entries = ?, tool_calls = ?, turns = ?, closed = ?,"
    " turn_window = ?, standing = ?, kept = coalesce(?, kept) WHERE session_id = ?"
)
_INSERT_STEP = (
    "INSERT INTO steps (session_id, recorded, kind, method, request_id, door, turn_id, received_at_ms,"
    " decision, error_code, chain_hash, entry, request, response, request_sha256, response_sha256)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_NONCE = "INSERT INTO nonces (session_id, nonce) VALUES (?, ?)"
_OPEN_TURN = (
    "INSERT INTO turns (session_id, ordinal, turn_id, denied, opened_at, triggered_by, parent_turn_id)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_CLOSE_TURN = (
    "UPDATE turns SET closed_at = ?, outcome = ?, steps = ?, tool_calls = ?, taint_step = ?, denials = ?,"
    " deferrals = ?, summary = ? WHERE session_id = ? AND ordinal = ?"
)
_REMEMBER = (
    "INSERT INTO lineage (session_id, provenance_id, request_id, turn_id, trust, depth) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (session_id, provenance_id) DO UPDATE SET trust = excluded.trust"
)
_INSERT_FINDING = "INSERT INTO findings (session_id, recorded, at_ms, code, message, turn_id) VALUES (?, ?, ?, ?, ?, ?)"
_SELECT_SESSION = f"SELECT {_TERMS_COLUMNS}, {_PROGRESS_COLUMNS} FROM sessions WHERE session_id = ?"  # noqa: S608  our own column names
_SELECT_REQUEST_IDS = (
    "SELECT request_id, iif(chain_hash IS NULL, '', method) FROM steps WHERE session_id = ?"
    " ORDER BY recorded DESC LIMIT ?"
)
_SELECT_NONCES = "SELECT nonce FROM nonces WHERE session_id = ? LIMIT ?"
_SELECT_LINEAGE = "SELECT provenance_id, request_id, turn_id, trust, depth FROM lineage WHERE session_id = ? LIMIT ?"
_SELECT_METHOD = "SELECT method FROM steps WHERE session_id = ? AND request_id = ? AND chain_hash IS NOT NULL"
# An extended intent has an entry and no request of its own: it came into force with the one that follows.
_INSERT_EXTENSION = (
    "INSERT INTO steps (session_id, recorded, kind, method, request_id, door, turn_id, received_at_ms, chain_hash,"
    " entry, request_sha256, response_sha256) VALUES (?, ?, 'step', 'intent_extension', ?, ?, ?, ?, ?, ?, x'', x'')"
)
_SELECT_USED = "SELECT decision, chain_hash, error_code FROM steps WHERE session_id = ? AND request_id = ?"
_SELECT_NONCE = "SELECT 1 FROM nonces WHERE session_id = ? AND nonce = ?"


class SqliteGuardianStore:
    """The Guardian's store in one SQLite file (`GuardianStore`)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None

    def open(self) -> None:
        """Creates or migrates the file, readable by its owner alone. Raises `StoreFailed`, `SchemaTooNew`."""
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            self._writer = _connect(self._path)
            migrate(self._writer)
            self._reader = _connect(self._path)
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise StoreFailed(f"the Guardian's store {self._path} cannot be opened: {error}") from error
        except TurnkeeperError:
            self.close()
            raise

    def close(self) -> None:
        """Closes both connections; idempotent."""
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None

    def commit(self, batch: Sequence[Record]) -> None:
        """Makes the batch durable in one transaction. Raises `StoreFailed` and then has written nothing of it.

        A failure while committing leaves it open whether the batch is durable; a fresh connection shows which.
        """
        try:
            if self._writer is None:
                self._writer = _connect(self._path)
            _write(self._writer, batch)
        except sqlite3.Error as error:
            self._drop_writer()
            raise StoreFailed(f"a batch of {len(batch)} records could not be committed: {error}") from error

    def load_session(self, session_id: str, max_ids: int) -> StoredSession | None:
        """A session with its newest ids; None where there is none. Raises `StoreFailed`."""
        return self._read(lambda connection: _load_session(connection, session_id, max_ids))

    def find_used(
        self, session_id: str, request_id: str, nonce: str | None, reference: str | None = None
    ) -> UsedBefore:
        """Whether the ids were used in the session. Raises `StoreFailed`."""
        return self._read(lambda connection: _find_used(connection, session_id, request_id, nonce, reference))

    def find_approval(self, session_id: str, request_id: str) -> Approval | None:
        """The question that a step raised, as it stands now. Raises `StoreFailed`."""
        row = self._read(lambda connection: connection.execute(SELECT_OF_STEP, (session_id, request_id)).fetchone())
        return None if row is None else approval_of(row)

    def _read(self, query: Callable[[sqlite3.Connection], _Result]) -> _Result:
        try:
            if self._reader is None:
                raise StoreFailed("the Guardian's store is not open")
            return query(self._reader)
        except sqlite3.Error as error:
            raise StoreFailed(f"the Guardian's store could not be read: {error}") from error

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False, cached_statements=64
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_AUTOCHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT_BYTES}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _write(connection: sqlite3.Connection, batch: Sequence[Record]) -> None:
    steps = [record for record in batch if isinstance(record, StepRecord)]
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(_INSERT_SESSION, _new_sessions(steps))
        connection.executemany(_INSERT_EXTENSION, _extensions(steps))
        connection.executemany(_INSERT_STEP, [_step_row(record) for record in steps])
        connection.executemany(INSERT_APPROVAL, [approval_row(one.question) for one in steps if one.question])
        connection.executemany(USE_APPROVAL, _used(steps))
        connection.executemany(_INSERT_NONCE, _nonces(batch))
        connection.executemany(_UPDATE_SESSION, _progress_rows(steps))
        connection.executemany(_OPEN_TURN, _opened(steps))
        connection.executemany(_CLOSE_TURN, _closed(steps))
        connection.executemany(_INSERT_FINDING, _findings(steps))
        connection.executemany(_REMEMBER, _remembered(steps))
        connection.execute("COMMIT")
    except BaseException:
        # Whatever it was, the next batch must not find this one's transaction open.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _new_sessions(steps: Sequence[StepRecord]) -> Values:
    for record in steps:
        if (terms := record.new_session) is not None:
            methods = _lines(terms.methods)
            yield (
                *(terms.session_id, terms.key_id, terms.agent_id, terms.acs_version, terms.skew_window_ms, methods),
                *(terms.hello_hash, terms.server_hello, terms.created_at_ms),
                *(terms.provenance_producer, _lines(terms.profiles), _lines(terms.mcp_versions)),
                *_progress_row(record.progress, record.kept),
            )


def _lines(names: frozenset[str]) -> str:
    return "\n".join(sorted(names))


def _progress_rows(steps: Sequence[StepRecord]) -> Values:
    latest = {record.session_id: record.progress for record in steps}
    kept = {record.session_id: record.kept for record in steps if record.kept is not None}
    return [(*_progress_row(progress, kept.get(id_)), id_) for id_, progress in latest.items()]


def _progress_row(progress: SessionProgress, kept: Kept | None) -> Row:
    return (
        *(progress.head, progress.recorded, progress.entries, progress.tool_calls, progress.turns, progress.closed),
        None if progress.window is None else render_window(progress.window),
        render_standing(progress.memory),
        None if kept is None else render_kept(kept),
    )


def _step_row(record: StepRecord) -> Row:
    answer = record.answer
    return (
        *(record.session_id, record.recorded, record.kind.value, record.method, record.request_id, record.door),
        *(record.turn_id, record.received_at_ms, answer.decision, answer.error_code, answer.chain_hash),
        *(record.entry, record.request, record.response),
        *(hashlib.sha256(record.request).digest(), hashlib.sha256(record.response).digest()),
    )


def _extensions(steps: Sequence[StepRecord]) -> Values:
    for record in steps:
        if (extension := record.extension) is not None:
            yield (
                *(record.session_id, extension.recorded, extension.entry_id, record.door, record.turn_id),
                *(record.received_at_ms, extension.chain_hash, extension.entry),
            )


def _used(steps: Sequence[StepRecord]) -> Values:
    return [(record.received_at_ms, record.used_approval) for record in steps if record.used_approval is not None]


def _nonces(batch: Sequence[Record]) -> Values:
    return [(record.session_id, record.nonce) for record in batch if record.nonce is not None]


def _opened(steps: Sequence[StepRecord]) -> Values:
    for record in steps:
        if (window := record.opened) is not None:
            yield (
                *(record.session_id, window.ordinal, window.turn_id, window.denied, record.recorded),
                *(window.triggered_by, window.parent_turn_id),
            )


def _closed(steps: Sequence[StepRecord]) -> Values:
    for record in steps:
        if (closed := record.closed) is not None:
            window = closed.window
            yield (
                *(record.recorded, closed.outcome, window.steps, window.tool_calls),
                *(window.taint_step, window.denials, window.deferrals, closed.summary),
                *(record.session_id, window.ordinal),
            )


def _findings(steps: Sequence[StepRecord]) -> Values:
    for record in steps:
        for found in record.findings:
            yield (
                *(record.session_id, record.recorded, record.received_at_ms),
                *(found.code, found.message, found.turn_id),
            )


def _remembered(steps: Sequence[StepRecord]) -> Values:
    for record in steps:
        for datum in record.lineage:
            yield (
                *(record.session_id, datum.provenance_id, datum.request_id),
                *(datum.turn_id, datum.trust, datum.depth),
            )


def _load_session(connection: sqlite3.Connection, session_id: str, max_ids: int) -> StoredSession | None:
    # One read transaction, so that counters and ids are of the same moment.
    connection.execute("BEGIN")
    try:
        row = connection.execute(_SELECT_SESSION, (session_id,)).fetchone()
        if row is None:
            return None
        requests = _rows(connection, _SELECT_REQUEST_IDS, session_id, max_ids + 1)
        nonces = _rows(connection, _SELECT_NONCES, session_id, max_ids + 1)
        lineage = _rows(connection, _SELECT_LINEAGE, session_id, MAX_PROVENANCE_IDS)
    finally:
        connection.execute("COMMIT")
    newest = requests[:max_ids][::-1]
    return StoredSession(
        terms=terms_of(row[:TERMS_WIDTH]),
        progress=progress_of(row[TERMS_WIDTH:]),
        request_ids=tuple(request_id for request_id, _ in newest),
        methods=tuple(method for _, method in newest),
        nonces=tuple(nonce for (nonce,) in nonces[:max_ids]),
        complete=max(len(requests), len(nonces)) <= max_ids,
        lineage=tuple(KnownDatum(*values) for values in lineage),
    )


def _rows(connection: sqlite3.Connection, query: str, session_id: str, limit: int) -> list[tuple[Any, ...]]:
    with closing(connection.execute(query, (session_id, limit))) as cursor:
        return cursor.fetchall()


def _find_used(
    connection: sqlite3.Connection, session_id: str, request_id: str, nonce: str | None, reference: str | None
) -> UsedBefore:
    row = connection.execute(_SELECT_USED, (session_id, request_id)).fetchone()
    used = nonce is not None and connection.execute(_SELECT_NONCE, (session_id, nonce)).fetchone() is not None
    named = None if reference is None else connection.execute(_SELECT_METHOD, (session_id, reference)).fetchone()
    return UsedBefore(
        None if row is None else RecordedAnswer(row[0], row[1], row[2]), used, None if named is None else named[0]
    )


def terms_of(row: Sequence[Any]) -> SessionTerms:
    """The terms in a row of `sessions`, in the order of its columns; the tables are STRICT, so each has its type."""
    session_id, key_id, agent_id, acs_version, skew_window_ms, methods, hello_hash, server_hello, created_at_ms = row[
        :9
    ]
    producer, profiles, mcp_versions = row[9:]
    return SessionTerms(
        session_id=session_id,
        key_id=key_id,
        agent_id=agent_id,
        acs_version=acs_version,
        skew_window_ms=skew_window_ms,
        methods=_names(methods),
        hello_hash=hello_hash,
        server_hello=server_hello,
        created_at_ms=created_at_ms,
        provenance_producer=producer,
        profiles=_names(profiles),
        mcp_versions=_names(mcp_versions),
    )


def _names(lines: str) -> frozenset[str]:
    return frozenset(filter(None, lines.split("\n")))


def progress_of(row: Sequence[Any]) -> SessionProgress:
    """The progress in a row of `sessions`, in the order of its columns."""
    head, recorded, entries, tool_calls, turns, closed, window, standing, kept = row
    return SessionProgress(
        head=head,
        recorded=recorded,
        entries=entries,
        tool_calls=tool_calls,
        turns=turns,
        closed=bool(closed),
        window=None if window is None else parse_window(window),
        memory=parse_memory(standing, kept),
    )
