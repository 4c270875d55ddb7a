"""What an operator sees and does (`OperatorStore`); counts are from the indexes of what is open alone."""

from sqlalchemy import Connection, func, select

from turnkeeper.store import draining, operating, turns
from turnkeeper.store.tables import IS_ACTIVE, IS_QUEUED
from turnkeeper.store.tables import turns as turn_rows
from turnkeeper.store.webhook_store import Reads, Writes
from turnkeeper.turns.model import CanceledBy, CancelMode, StopReason, Turn
from turnkeeper.turns.operations import Drain, OperatorStore, QueueState, RequeueEffect
from turnkeeper.turns.ports import CancelEffect


class SqlOperatorStore(OperatorStore):
    """Counts in the turn store's database."""

    def __init__(self, read: Reads, write: Writes) -> None:
        self._read = read
        self._write = write

    async def queue_state(self) -> QueueState:
        return await self._read(queue_state)

    async def requeue_turn(self, turn_id: str) -> tuple[Turn, RequeueEffect]:
        return await self._write(lambda tx: operating.requeue_turn(tx, turn_id))

    async def fail_turn(self, turn_id: str, *, reason: str | None) -> Turn:
        return await self._write(lambda tx: operating.fail_turn(tx, turn_id, reason))

    async def cancel_turn(self, turn_id: str, *, mode: CancelMode, by: CanceledBy) -> tuple[Turn, CancelEffect]:
        return await self._write(
            lambda tx: turns.cancel_turn(tx, turn_id, mode=mode, by=by, reason=StopReason.OPERATOR)
        )

    async def drain(self) -> Drain | None:
        return await self._read(draining.drain_of)

    async def begin_drain(self, *, reason: str | None, by: CanceledBy) -> Drain:
        return await self._write(lambda tx: draining.begin_drain(tx, reason, by))

    async def end_drain(self) -> None:
        await self._write(draining.end_drain)


def queue_state(conn: Connection) -> QueueState:
    """The turns that are not over, counted in one snapshot."""
    waiting = select(func.count(), func.min(turn_rows.c.created_at)).where(IS_QUEUED)
    queued, oldest = conn.execute(waiting).one()
    at_front = (turn_rows.c.front_of.is_not(None), IS_ACTIVE)
    by_status = select(turn_rows.c.status, func.count()).where(*at_front).group_by(turn_rows.c.status)
    counts: dict[str, int] = {row[0]: row[1] for row in conn.execute(by_status).all()}
    busy = select(func.count(turn_rows.c.owner.distinct())).where(turn_rows.c.owner.is_not(None))
    return QueueState(
        queued=queued,
        starting=counts.get("starting", 0),
        running=counts.get("running", 0),
        paused=counts.get("paused", 0),
        oldest_queued_at=oldest,
        busy_runners=conn.execute(busy).scalar_one(),
    )
