"""What an operator sees and does (`OperatorStore`); counts are from the indexes of what is open alone."""

from datetime import datetime, timedelta

from sqlalchemy import Connection, func, select

from turnkeeper.clock import Clock
from turnkeeper.store import draining, operating, turns
from turnkeeper.store.admin import HEAD_REVISION, revision_of
from turnkeeper.store.tables import IS_ACTIVE, IS_PENDING, IS_QUEUED, steps
from turnkeeper.store.tables import turns as turn_rows
from turnkeeper.store.webhook_store import Reads, Writes
from turnkeeper.store.webhook_tables import IS_WAITING, webhook_deliveries
from turnkeeper.turns.model import CanceledBy, CancelMode, StopReason, Turn
from turnkeeper.turns.operations import Backlog, Drain, OperatorStore, QueueState, RequeueEffect
from turnkeeper.turns.ports import CancelEffect


class SqlOperatorStore(OperatorStore):
    """Counts in the turn store's database."""

    def __init__(self, read: Reads, write: Writes, clock: Clock) -> None:
        self._read = read
        self._write = write
        self._clock = clock

    async def queue_state(self) -> QueueState:
        return await self._read(queue_state)

    async def backlog(self, stuck_after_ms: int) -> Backlog:
        since = self._clock.now() - timedelta(milliseconds=stuck_after_ms)
        return await self._read(lambda conn: backlog(conn, since))

    async def requeue_turn(self, turn_id: str) -> tuple[Turn, RequeueEffect]:
        return await self._write(lambda tx: operating.requeue_turn(tx, turn_id))

    async def fail_turn(self, turn_id: str, *, reason: str | None) -> Turn:
        return await self._write(lambda tx: operating.fail_turn(tx, turn_id, reason))

    async def cancel_turn(self, turn_id: str, *, mode: CancelMode, by: CanceledBy) -> tuple[Turn, CancelEffect]:
        return await self._write(
            lambda tx: turns.cancel_turn(tx, turn_id, mode=mode, by=by, reason=StopReason.OPERATOR)
        )

    async def schema_is_current(self) -> bool:
        """Whether the tables are still this program's: another version may have migrated them meanwhile."""
        return await self._read(lambda conn: revision_of(conn) == HEAD_REVISION)

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


def backlog(conn: Connection, alive_since: datetime) -> Backlog:
    """What is behind, counted in one snapshot; a turn is stuck when its last sign of life is before `alive_since`."""
    unheard = (
        turn_rows.c.front_of.is_not(None),
        IS_ACTIVE,
        turn_rows.c.owner.is_not(None),
        turn_rows.c.beat_at < alive_since,
    )
    stuck = conn.execute(select(func.count()).select_from(turn_rows).where(*unheard)).scalar_one()
    told = select(func.count(), func.min(steps.c.created_at)).where(IS_PENDING)
    pending_steps, oldest_step_at = conn.execute(told).one()
    sent = select(func.count(), func.min(webhook_deliveries.c.created_at)).where(IS_WAITING)
    pending_deliveries, oldest_delivery_at = conn.execute(sent).one()
    return Backlog(stuck, pending_steps, oldest_step_at, pending_deliveries, oldest_delivery_at)
