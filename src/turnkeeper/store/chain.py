"""guardian.db: the Guardian's sessions, chain, replay memory, turn windows and signed answers on raw SQLite.

Answers for one durable commit per batch (WAL, `synchronous=FULL`) and for point reads. Must never report a batch as
durable that is not, nor let a session use one request_id or nonce twice: UNIQUE constraints stand behind the
Guardian's own memory. One thread commits; loads may come from another.
INVARIANT: from `open` to `close` it is one file. One that was moved, deleted or replaced takes nothing any more: SQLite
would go on writing into what nobody will find again.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, TypeVar

from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.approvals import Approval
from turnkeeper.guardian.ports import (
    Record,
    StoredSession,
    StoreFailed,
    UsedBefore,
)
from turnkeeper.store import chain_rows as rows
from turnkeeper.store import chain_sql as sql
from turnkeeper.store.chain_queries import Fetch, find_approval, find_used, load_session
from turnkeeper.store.chain_schema import migrate, schema_version
from turnkeeper.store.file_hold import FileHold

BUSY_TIMEOUT_MS: Final = 2_000
"""How long another process may hold the file; then steps are denied, within the time a client waits for an answer."""
WAL_AUTOCHECKPOINT_PAGES: Final = 2_000
WAL_SIZE_LIMIT_BYTES: Final = 64 * 1024 * 1024

_Result = TypeVar("_Result")


class SqliteGuardianStore:
    """The Guardian's store in one SQLite file (`GuardianStore`)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._hold = FileHold(path)

    def open(self) -> None:
        """Creates or migrates the file, readable by its owner alone, and holds it until `close`.

        Raises `StoreFailed`, `StoreInUse` where another Guardian has it, `SchemaTooNew`.
        """
        try:
            self._hold.take()
            _create(self._path)
            self._file = _identity(self._path)
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
        self._reader = self._writer = self._file = None
        self._hold.let_go()

    def commit(self, batch: Sequence[Record]) -> None:
        """Makes the batch durable in one transaction. Raises `StoreFailed` and then has written nothing of it.

        A failure while committing leaves it open whether the batch is durable; a fresh connection shows which.
        """
        self._check_file()
        try:
            if self._writer is None:
                self._writer = _connect(self._path)
            _write(self._writer, batch)
        except sqlite3.Error as error:
            self._drop_writer()
            raise StoreFailed(f"a batch of {len(batch)} records could not be committed: {error}") from error

    def load_session(self, session_id: str, max_ids: int) -> StoredSession | None:
        """A session with its newest ids; None where there is none. Raises `StoreFailed`, `SessionArchived`."""
        return self._read(lambda fetch: load_session(fetch, session_id, max_ids))

    def find_used(
        self, session_id: str, request_id: str, nonce: str | None, reference: str | None = None
    ) -> UsedBefore:
        """Whether the ids were used in the session. Raises `StoreFailed`."""
        return self._read(lambda fetch: find_used(fetch, session_id, request_id, nonce, reference))

    def find_approval(self, session_id: str, request_id: str) -> Approval | None:
        """The question that a step raised, as it stands now. Raises `StoreFailed`."""
        return self._read(lambda fetch: find_approval(fetch, session_id, request_id))

    def _read(self, body: Callable[[Fetch], _Result]) -> _Result:
        self._check_file()
        try:
            if self._reader is None:
                self._reader = _connect(self._path)
            return _read(self._reader, body)
        except sqlite3.Error as error:
            self._drop_reader()
            raise StoreFailed(f"the Guardian's store could not be read: {error}") from error

    def _check_file(self) -> None:
        try:
            found = _identity(self._path)
        except OSError as error:
            raise StoreFailed(f"the Guardian's store {self._path} is gone: {error.strerror}") from error
        if self._file is None:
            raise StoreFailed("the Guardian's store is not open")
        if found != self._file:
            raise StoreFailed(f"the Guardian's store {self._path} is another file than the one that was opened")

    def _drop_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def migrate_file(path: Path) -> int:
    """Makes the file or brings it up to date, beside a Guardian or without one; its version.

    Raises `StoreFailed`, `SchemaTooNew`.
    """
    try:
        _create(path)
        with closing(_connect(path)) as connection:
            migrate(connection)
            return schema_version(connection)
    except (sqlite3.Error, OSError) as error:
        raise StoreFailed(f"the Guardian's store {path} cannot be migrated: {error}") from error


def _create(path: Path) -> None:
    # INVARIANT: a file that is there is not opened here: closing it would end SQLite's locks of this process on it.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _identity(path: Path) -> tuple[int, int]:
    seen = path.stat()
    return seen.st_dev, seen.st_ino


def _connect(path: Path) -> sqlite3.Connection:
    # A file that has just gone must not be made again, empty.
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
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
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement, values in rows.changes(batch):
            done = connection.executemany(statement, values).rowcount
            if statement is sql.UPDATE_SESSION:
                _check_all_there(done, len(values))
        connection.execute("COMMIT")
    except BaseException:
        # Whatever it was, the next batch must not find this one's transaction open.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_all_there(updated: int, sessions: int) -> None:
    """INVARIANT: an archived session gets no further step, whatever a Guardian remembers of it."""
    if updated != sessions:
        raise sqlite3.IntegrityError("a session of the batch is not there")


def _read(connection: sqlite3.Connection, body: Callable[[Fetch], _Result]) -> _Result:
    # One read transaction, so that counters and ids are of the same moment.
    connection.execute("BEGIN")
    try:
        return body(lambda query, values: connection.execute(query, values).fetchall())
    finally:
        connection.execute("COMMIT")
