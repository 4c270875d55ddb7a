"""Who waits for whom (contract 7): first in, first out per session, one turn at a time, a bounded queue.

Pure. The order itself is fixed by the store under the session's row lock.
"""

from dataclasses import dataclass
from typing import Final, Literal

from turnkeeper.turns.model import TurnStatus
from turnkeeper.turns.ports import QueueFull

MAX_QUEUE_DEPTH: Final = 100
"""How many turns may wait in one session, unless the operator says otherwise."""


@dataclass(frozen=True, slots=True)
class BlockedBy:
    """The turn that holds the session."""

    turn_id: str
    reason: Literal["starting", "running"]


def check_depth(depth: int, limit: int) -> None:
    """Raises `QueueFull` when a session with `depth` waiting turns takes no more."""
    if depth >= limit:
        raise QueueFull(
            f"{depth} turns wait in this session, which is its limit",
            detail={"queue_depth": depth, "limit": limit},
            hint="Post the turn again when some of them have ended.",
        )


def blocked_by(active_id: str | None, status: TurnStatus | None) -> BlockedBy | None:
    """What a new turn waits for, given the session's active turn."""
    if active_id is None or status is None:
        return None
    return BlockedBy(active_id, "starting" if status is TurnStatus.STARTING else "running")
