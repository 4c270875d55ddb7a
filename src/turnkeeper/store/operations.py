"""The queue as an operator sees it, from the indexes of what is open: ended turns cost nothing here."""

from sqlalchemy import Connection, func, select

from turnkeeper.store.tables import IS_ACTIVE, IS_QUEUED, turns
from turnkeeper.store.webhook_store import Reads
from turnkeeper.turns.operations import OperatorStore, QueueState


class SqlOperatorStore(OperatorStore):
    """Counts in the turn store's database."""

    def __init__(self, read: Reads) -> None:
        self._read = read

    async def queue_state(self) -> QueueState:
        return await self._read(queue_state)


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
