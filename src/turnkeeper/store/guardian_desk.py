"""What people read and decide of a Guardian, straight from guardian.db, beside the Guardian that writes it.

Answers for reads in pages and for the answers of approvers (`guardian.admin.AdminStore`). The file is opened for each
call, so that any thread of any process may ask.
"""

from collections.abc import Sequence
from pathlib import Path

from turnkeeper.guardian.ports import SessionSummary, StoredEntry, StoredFinding, TurnSummary
from turnkeeper.store.approvals import SqliteApprovals
from turnkeeper.store.chain_reader import SqliteChainReader


class SqliteGuardianDesk(SqliteApprovals):
    """Sessions, turns, entries, findings, approvals and keys."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._database = path

    def sessions(self, *, after: str, limit: int) -> Sequence[SessionSummary]:
        """Sessions by id. Raises `StoreFailed`."""
        with SqliteChainReader(self._database) as reader:
            return reader.sessions(after=after, limit=limit)

    def session(self, session_id: str) -> SessionSummary | None:
        """One session. Raises `StoreFailed`."""
        with SqliteChainReader(self._database) as reader:
            return reader.session(session_id)

    def turns(self, session_id: str, *, after: int, limit: int) -> Sequence[TurnSummary]:
        """A session's turn windows. Raises `StoreFailed`."""
        with SqliteChainReader(self._database) as reader:
            return reader.turn_page(session_id, after=after, limit=limit)

    def entries(self, session_id: str, *, after: int, limit: int) -> Sequence[StoredEntry]:
        """A session's chain. Raises `StoreFailed`."""
        with SqliteChainReader(self._database) as reader:
            return reader.entries(session_id, after=after, limit=limit)

    def findings(self, session_id: str, *, after: int, limit: int) -> Sequence[StoredFinding]:
        """What an auditor should see of a session. Raises `StoreFailed`."""
        with SqliteChainReader(self._database) as reader:
            return reader.findings(session_id, after=after, limit=limit)

    def request(self, session_id: str, request_id: str) -> bytes | None:
        """A request as it was received. Raises `StoreFailed`."""
        with SqliteChainReader(self._database) as reader:
            return reader.request(session_id, request_id)
