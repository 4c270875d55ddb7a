"""The queue as an operator sees it, from the indexes of what is open: ended turns cost nothing here."""

from datetime import datetime, timedelta

from sqlalchemy import Connection, func, select

from turnkeeper.clock import Clock
from turnkeeper.store.tables import IS_ACTIVE, IS_PENDING, IS_QUEUED, steps, turns
from turnkeeper.store.webhook_store import Reads
from turnkeeper.store.webhook_tables import IS_WAITING, webhook_deliveries
from turnkeeper.turns.operations import Backlog, OperatorStore, QueueState


class SqlOperatorStore(OperatorStore):
    """Counts in the turn store's database."""

    def __init__(self, read: Reads, clock: Clock) -> None:
        self._read = read
        self._clock = clock

    async def queue_state(self) -> QueueState:
        return await self._read(queue_state)

    async def backlog(self, stuck_after_ms: int) -> Backlog:
        since = self._clock.now() - timedelta(milliseconds=stuck_after_ms)
        return await self._read(lambda conn: backlog(conn, since))


def queue_state(conn: Connection) -> QueueState:
    """The turns that are not over, counted in one snapshot."""
    waiting = select(func.count(), func.min(turns.c.created_at)).where(IS_QUEUED)
    queued, oldest = conn.execute(waiting).one()
    at_front = (turns.c.front_of.is_not(None), IS_ACTIVE)
    by_status = select(turns.c.status, func.count()).where(*at_front).group_by(turns.c.status)
    counts: dict[str, int] = {row[0]: row[1] for row in conn.execute(by_status).all()}
    busy = select(func.count(turns.c.owner.distinct())).where(turns.c.owner.is_not(None))
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
    unheard = (turns.c.front_of.is_not(None), IS_ACTIVE, turns.c.owner.is_not(None), turns.c.beat_at < alive_since)
    stuck = conn.execute(select(func.count()).select_from(turns).where(*unheard)).scalar_one()
    told = select(func.count(), func.min(steps.c.created_at)).where(IS_PENDING)
    pending_steps, oldest_step_at = conn.execute(told).one()
    sent = select(func.count(), func.min(webhook_deliveries.c.created_at)).where(IS_WAITING)
    pending_deliveries, oldest_delivery_at = conn.execute(sent).one()
    return Backlog(stuck, pending_steps, oldest_step_at, pending_deliveries, oldest_delivery_at)
