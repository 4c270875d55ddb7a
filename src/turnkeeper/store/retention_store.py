"""`RetentionStore` on SQL: every step is one transaction of `store/session_retention.py`."""

from collections.abc import Callable, Collection, Sequence

from turnkeeper.clock import Clock
from turnkeeper.store import session_retention as retention
from turnkeeper.store.tx import Tx
from turnkeeper.store.webhook_store import Reads, Writes
from turnkeeper.turns.containment import all_of
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

    async def expired(self, limit: int, *, after: str | None = None) -> tuple[Sequence[str], str | None]:
        now = self._clock.now()
        return await self._read(lambda conn: retention.expired(conn, limit, after or "", now))

    async def delete_if_expired(self, session_id: str) -> None:
        await self._write(lambda tx: retention.delete_if_expired(tx, session_id))

    async def erase(self, limit: int) -> int:
        doomed = await self._read(lambda conn: retention.erasable(conn, limit))
        await all_of(self._erase(session_id) for session_id in doomed)
        return len(doomed)

    async def _erase(self, session_id: str) -> None:
        while not await self._write(_erasure(session_id)):
            pass

    async def without_workspace(self, session_ids: Collection[str]) -> frozenset[str]:
        return await self._read(lambda conn: retention.without_workspace(conn, session_ids))


def _erasure(session_id: str) -> Callable[[Tx], bool]:
    return lambda tx: retention.erase(tx, session_id)
