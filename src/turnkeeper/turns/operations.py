"""What an operator sees of the queue (contract 2.12): counts over all projects, and nothing that anybody said."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class QueueState:
    """The turns that are not over, by where they are; `busy_runners` are the workers that hold one."""

    queued: int
    starting: int
    running: int
    paused: int
    oldest_queued_at: datetime | None
    busy_runners: int


class OperatorStore(Protocol):
    """What the operator endpoints read."""

    async def queue_state(self) -> QueueState: ...
