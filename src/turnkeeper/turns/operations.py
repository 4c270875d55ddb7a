"""What an operator sees and does (contract 2.12): counts over all projects, and the last word on a turn.

Must never put a turn back that may have had side effects, unless its app asked for more than one attempt.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.model import CanceledBy, CancelMode, Turn
from turnkeeper.turns.ports import CancelEffect

STUCK_AFTER_MS: Final = 120_000
"""A turn without a sign of life for longer is stuck: four leases of the usual length, within which it is taken over."""
HANDOVER_MS: Final = 2_000
"""How long nobody begins in a session whose worker has just been told to let go: its boxes are ended meanwhile."""
DRAIN_RETRY_AFTER_MS: Final = 10_000
OPERATOR: Final = "operator"
"""Who holds a turn inside the transaction in which an operator takes it."""

RequeueEffect: TypeAlias = Literal["requeued", "retried", "unchanged"]
"""Given back as it was; its attempt lost and another one due; held by nobody anyway."""


class Draining(TurnkeeperError):
    """The platform takes no turns for now."""

    code = "draining"

    def __init__(self) -> None:
        super().__init__(
            "An operator drains the platform: no turn is accepted.", detail={"retry_after_ms": DRAIN_RETRY_AFTER_MS}
        )


class AttemptsUsed(TurnkeeperError):
    """The turn runs, may have had side effects, and its app allowed no further attempt."""

    code = "attempts_used"


@dataclass(frozen=True, slots=True)
class QueueState:
    """The turns that are not over, by where they are; `busy_runners` are the workers that hold one."""

    queued: int
    starting: int
    running: int
    paused: int
    oldest_queued_at: datetime | None
    busy_runners: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits to be told to the Guardian and to webhooks, and turns that run without a sign of life."""

    stuck_turns: int
    pending_steps: int
    oldest_step_at: datetime | None
    pending_deliveries: int
    oldest_delivery_at: datetime | None


@dataclass(frozen=True, slots=True)
class Drain:
    """Since when, why and at whose word no turn is accepted or begun."""

    since: datetime
    reason: str | None
    asked_by: CanceledBy


class OperatorStore(Protocol):
    """What the operator endpoints need. Every method is one transaction."""

    async def queue_state(self) -> QueueState: ...

    async def backlog(self, stuck_after_ms: int) -> Backlog:
        """What is behind; a turn is stuck when its last sign of life is older than `stuck_after_ms`."""
        ...

    async def requeue_turn(self, turn_id: str) -> tuple[Turn, RequeueEffect]:
        """Takes a turn from whoever holds it, so that any worker may take it.

        A running one loses its attempt (row 21). Raises `NotFound`, `TurnEnded`, `AttemptsUsed`.
        """
        ...

    async def fail_turn(self, turn_id: str, *, reason: str | None) -> Turn:
        """Row 28: ends a turn at once, whoever holds it. Raises `NotFound`, `TurnEnded`."""
        ...

    async def cancel_turn(self, turn_id: str, *, mode: CancelMode, by: CanceledBy) -> tuple[Turn, CancelEffect]:
        """As an app cancels a turn, with stop reason `operator`. Raises `NotFound`."""
        ...

    async def drain(self) -> Drain | None: ...

    async def begin_drain(self, *, reason: str | None, by: CanceledBy) -> Drain:
        """No turn is accepted or begun from now on, in any process. The first word stands."""
        ...

    async def end_drain(self) -> None: ...
