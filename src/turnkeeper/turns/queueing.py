"""Who waits for whom (contract 7): first in, first out per session, fair shares between keys and projects, bounds.

Pure. The order itself is fixed by the store: in a session under the lock of its row, between sessions by the shares
that are counted here.
"""

from dataclasses import dataclass
from typing import Final

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.model import BlockedBy, TurnStatus
from turnkeeper.turns.ports import QueueFull

MAX_QUEUE_DEPTH: Final = 100
"""How many turns may wait in one session, unless the operator says otherwise."""
MAX_KEY_DEPTH: Final = 10_000
"""How many turns posted with one API key may wait, unless the operator says otherwise."""
ROUND: Final = 1_000_000
"""What one turn counts in a share of weight 1."""


class SessionBusy(TurnkeeperError):
    """The session has an open turn and the app asked not to wait; `detail` has its `active_turn_id`."""

    code = "session_busy"


@dataclass(frozen=True, slots=True)
class Share:
    """What a key or a project has been served: where its last turn began in the count of all, and where it ended."""

    id: str
    weight: int
    began: int
    served: int


def check_depth(depth: int, limit: int) -> None:
    """Raises `QueueFull` when a session with `depth` waiting turns takes no more."""
    if depth >= limit:
        raise QueueFull(
            f"{depth} turns wait in this session, which is its limit",
            detail={"queue_depth": depth, "limit": limit},
            hint="Post the turn again when some of them have ended.",
        )


def check_key_depth(depth: int, limit: int) -> None:
    """Raises `QueueFull` when a key with `depth` waiting turns may post no more."""
    if depth >= limit:
        raise QueueFull(
            f"{depth} turns posted with this API key wait, which is its limit",
            detail={"key_queue_depth": depth, "limit": limit},
            hint="Post the turn again when some of them have ended.",
        )


def check_idle(front_id: str | None) -> None:
    """Raises `SessionBusy` where a turn that would not wait (`on_busy: reject`) meets an open one."""
    if front_id is not None:
        raise SessionBusy(
            "the session has an open turn",
            detail={"active_turn_id": front_id},
            hint="Post the turn again when that one has ended, or with on_busy enqueue or interrupt.",
        )


def blocked_by(front_id: str, status: TurnStatus, approval_ids: tuple[str, ...] = ()) -> BlockedBy | None:
    """What the turns behind a session's front wait for; None once that one has ended."""
    match status:
        case TurnStatus.QUEUED:
            return BlockedBy(front_id, "queued")
        case TurnStatus.STARTING:
            return BlockedBy(front_id, "starting")
        case TurnStatus.RUNNING:
            return BlockedBy(front_id, "running")
        case TurnStatus.PAUSED:
            return BlockedBy(front_id, "paused", approval_ids)
        case _:
            return None


def turn_to_serve(share: Share, newest: int) -> int:
    """Where the next turn of a share begins in the count; the lowest goes first.

    `newest` is where the last turn served of any share began: who comes back after a while is served soon, and not as
    often as it might have been meanwhile.
    """
    return max(share.served, newest)


def served(share: Share, newest: int) -> Share:
    """The share once one more of its turns has begun."""
    began = turn_to_serve(share, newest)
    return Share(share.id, share.weight, began, began + ROUND // share.weight)
