"""What an operator sees of the queue (contract 2.12): counts over all projects, and nothing that anybody said."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

STUCK_AFTER_MS: Final = 120_000
"""A turn without a sign of life for longer is stuck: four leases of the usual length, within which it is taken over."""


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


class OperatorStore(Protocol):
    """What the operator endpoints read."""

    async def queue_state(self) -> QueueState: ...

    async def backlog(self, stuck_after_ms: int) -> Backlog:
        """What is behind; a turn is stuck when its last sign of life is older than `stuck_after_ms`."""
        ...
