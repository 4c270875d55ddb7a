"""`RetentionStore` on SQL: every step is one transaction of `store/session_retention.py`."""

from collections.abc import Callable, Collection

from turnkeeper.clock import Clock
from turnkeeper.store import session_retention as retention
from turnkeeper.store.tx import Tx
from turnkeeper.store.webhook_store import Reads, Writes
from turnkeeper.turns.model import CanceledBy, Session
from turnkeeper.turns.retention import RetentionStore, SessionChange


class SqlRetentionStore(RetentionStore):
    """The end of sessions, in the turn store's database."""

    def __init__(self, read: Reads, write: Writes, clock: Clock) -> None:
        self._read = read
        self._write = write
        self._clock = clock

    async def change_session(self, session_id: str, change: SessionChange) -> Session:
        return await self._write(lambda tx: retention.change_session(tx, session_id, change))

    async def delete_session(self, session_id: str, *, by: CanceledBy) -> Session:
        return await self._write(lambda tx: retention.delete_session(tx, session_id, by=by))

    async def delete_expired(self, limit: int, *, after: str | None = None) -> str | None:
        now = self._clock.now()
        over, last = await self._read(lambda conn: retention.expired(conn, limit, after or "", now))
        for session_id in over:
            await self._write(_expiry(session_id))
        return last

    async def erase(self, limit: int) -> int:
        doomed = await self._read(lambda conn: retention.erasable(conn, limit))
        for session_id in doomed:
            while not await self._write(_erasure(session_id)):
                pass
        return len(doomed)

    async def without_workspace(self, session_ids: Collection[str]) -> frozenset[str]:
        return await self._read(lambda conn: retention.without_workspace(conn, session_ids))


def _expiry(session_id: str) -> Callable[[Tx], None]:
    return lambda tx: retention.delete_if_expired(tx, session_id)


def _erasure(session_id: str) -> Callable[[Tx], bool]:
    return lambda tx: retention.erase(tx, session_id)
