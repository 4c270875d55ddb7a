"""Snapshots, lone turns and retries, each method one transaction (`SnapshotReads`, `TurnPosts`)."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from turnkeeper.clock import Clock
from turnkeeper.store import posting, snapshots
from turnkeeper.store.tx import Tx
from turnkeeper.turns.ports import Accepted, NewSession, NewTurn
from turnkeeper.turns.posting import NewRetry, TurnPosts
from turnkeeper.turns.snapshots import SessionSnapshot, SnapshotReads

T = TypeVar("T")


class SqlPosts(SnapshotReads, TurnPosts, Protocol):
    """What `SqlTurnStore` inherits. It brings the two kinds of transaction and the clock."""

    _clock: Clock

    async def _read(self, body: Callable[[Connection], T]) -> T: ...
    async def _write(self, body: Callable[[Tx], T]) -> T: ...

    async def snapshot(self, session_id: str) -> SessionSnapshot:
        now = self._clock.now()
        return await self._read(lambda conn: snapshots.session_snapshot(conn, session_id, now))

    async def accept_alone(self, session: NewSession, new: NewTurn) -> Accepted:
        return await self._accepted(lambda tx: posting.accept_alone(tx, session, new))

    async def retry_turn(self, new: NewRetry) -> Accepted:
        return await self._accepted(lambda tx: posting.retry_turn(tx, new))

    async def _accepted(self, body: Callable[[Tx], Accepted]) -> Accepted:
        try:
            return await self._write(body)
        except IntegrityError:
            # One key twice at the same moment: the other request has it now, and this try will see so.
            return await self._write(body)
