"""What a session does (contract 2.2 and 10.4): idle, busy or paused, for the session object and its events alike.

Pure. One rule gives both, so that `status` and the last `session.*` event of an open session never disagree. A session
that is closing says so instead, and one of a single turn is closing from its beginning: neither tells what it does.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from turnkeeper.events.catalogue import session_activity
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns.model import Session, Turn, TurnStatus

Activity: TypeAlias = Literal["idle", "busy", "paused"]


@dataclass(frozen=True, slots=True)
class Doing:
    """The active turn of a session, and how many wait behind it."""

    active_turn_id: str | None
    active_status: TurnStatus | None
    queue_depth: int

    @property
    def activity(self) -> Activity:
        """`paused` while the active turn is, `busy` while one is active or waits, else `idle`."""
        if self.active_status is TurnStatus.PAUSED:
            return "paused"
        return "busy" if self.active_turn_id is not None or self.queue_depth else "idle"

    def with_another(self) -> "Doing":
        """Once one more turn waits."""
        return replace(self, queue_depth=self.queue_depth + 1)

    def without(self, turn: Turn) -> "Doing":
        """Once this turn of the session has ended."""
        if turn.status is TurnStatus.QUEUED:
            return replace(self, queue_depth=self.queue_depth - 1)
        return replace(self, active_turn_id=None, active_status=None)

    def once(self, turn: Turn, status: TurnStatus) -> "Doing":
        """Once this active turn has the status."""
        return replace(self, active_turn_id=turn.id, active_status=status)


def doing_of(session: Session) -> Doing:
    """What the session does now."""
    return Doing(session.active_turn_id, session.active_status, session.queue_depth)


def activity_news(session: Session, after: Doing) -> list[NewEvent]:
    """The event of a session that does something else from now on, to follow those that made it so; or none."""
    if session.status != "open" or session.ephemeral or doing_of(session).activity == after.activity:
        return []
    return [
        session_activity(
            session_id=session.id,
            activity=after.activity,
            active_turn_id=after.active_turn_id,
            queue_depth=after.queue_depth,
        )
    ]
