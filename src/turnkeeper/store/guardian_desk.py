"""What people read and decide of a Guardian, straight from its database, beside the Guardian that writes it.

Answers for reads in pages and for the answers of approvers (`guardian.admin.AdminStore`), from any thread of any
process.
"""

import sqlite3
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from turnkeeper.guardian.ports import SessionSummary, StoredEntry, StoredFinding, StoreFailed, TurnSummary
from turnkeeper.store.approvals import Approvals
from turnkeeper.store.chain_reader import SqliteChainReader
from turnkeeper.store.chain_reads import ChainReads
from turnkeeper.store.chain_schema import check_version

BUSY_TIMEOUT_MS: Final = 5_000


class GuardianDesk(Approvals):
    """Sessions, turns, entries, findings, approvals and keys, whichever database holds them."""

    @abstractmethod
    def _reader(self) -> ChainReads:
        """What reads the chain, for one call."""

    def sessions(self, *, after: str, limit: int) -> Sequence[SessionSummary]:
        """Sessions by id. Raises `StoreFailed`."""
        with self._reader() as reader:
            return reader.sessions(after=after, limit=limit)

    def session(self, session_id: str) -> SessionSummary | None:
        """One session. Raises `StoreFailed`."""
        with self._reader() as reader:
            return reader.session(session_id)

    def turns(self, session_id: str, *, after: int, limit: int) -> Sequence[TurnSummary]:
        """A session's turn windows. Raises `StoreFailed`."""
        with self._reader() as reader:
            return reader.turn_page(session_id, after=after, limit=limit)

    def entries(self, session_id: str, *, after: int, limit: int) -> Sequence[StoredEntry]:
        """A session's chain. Raises `StoreFailed`."""
        with self._reader() as reader:
            return reader.entries(session_id, after=after, limit=limit)

    def findings(self, session_id: str, *, after: int, limit: int) -> Sequence[StoredFinding]:
        """What an auditor should see of a session. Raises `StoreFailed`."""
        with self._reader() as reader:
            return reader.findings(session_id, after=after, limit=limit)

    def request(self, session_id: str, request_id: str) -> bytes | None:
        """A request as it was received. Raises `StoreFailed`."""
        with self._reader() as reader:
            return reader.request(session_id, request_id)


class SqliteGuardianDesk(GuardianDesk):
    """The desk over guardian.db. Opens the file for each call, so that any thread may use it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            with closing(_connect(self._path)) as connection:
                return connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreFailed(f"the Guardian's store could not be read: {error}") from error

    def _change(self, statement: str, *values: object) -> int:
        try:
            with closing(_connect(self._path)) as connection:
                return connection.execute(statement, values).rowcount
        except sqlite3.Error as error:
            raise StoreFailed(f"the Guardian's store could not be changed: {error}") from error

    def _reader(self) -> ChainReads:
        return SqliteChainReader(self._path)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        check_version(connection)
    except BaseException:
        connection.close()
        raise
    return connection
