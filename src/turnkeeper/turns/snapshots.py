"""A session as it is at one of its events (contract 2.2): what an app reads before it follows a stream.

Values only. Answers for one moment: everything here was true when the event `as_of` was the session's last, and the
events behind it say all that happened since.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from turnkeeper.turns.approvals import Approval
from turnkeeper.turns.model import BlockedBy, Session, Turn, Usage
from turnkeeper.turns.pausing import Pause

MAX_QUEUED_TURNS: Final = 1_000
MAX_RECENT_TURNS: Final = 20
MAX_OPEN_APPROVALS: Final = 100


@dataclass(frozen=True, slots=True)
class TurnView:
    """A turn with what stands in other rows. `refused` counts the submissions that were not valid."""

    turn: Turn
    blocked_by: BlockedBy | None = None
    pause: Pause | None = None
    refused: int = 0


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """A session, what it has used, its turns and its open questions at one moment.

    `queued` is in the order of the queue, at most `MAX_QUEUED_TURNS`; `recent` are the ended turns that were posted
    last, newest first, at most `MAX_RECENT_TURNS`.
    """

    session: Session
    usage: Usage
    active: TurnView | None
    queued: tuple[TurnView, ...]
    recent: tuple[TurnView, ...]
    approvals: tuple[Approval, ...]

    @property
    def as_of(self) -> int:
        """The sequence of the last event that the snapshot knows of."""
        return self.session.last_sequence


class SnapshotReads(Protocol):
    """Where snapshots come from."""

    async def snapshot(self, session_id: str) -> SessionSnapshot:
        """The session as it is, read in one transaction. Raises `NotFound`."""
        ...
