"""What a worker needs of a store for turns that wait (contract 6, rows 15, 16 and 23 to 26)."""

from collections.abc import Sequence
from typing import Protocol

from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns.approvals import ApprovalRule, AskedStep
from turnkeeper.turns.model import Fence, Turn
from turnkeeper.turns.pausing import NewPause, Pause


class PauseStore(Protocol):
    """What a worker needs. Every method is one transaction."""

    async def pause(self, fence: Fence, pause: NewPause, events: Sequence[NewEvent]) -> None:
        """Rows 15 and 16, `events` before those of the pause. A deferral's turnEnd is in it."""
        ...

    async def open_pause(self, turn_id: str) -> Pause | None:
        """The pause that a turn is in, or has not gone on from yet."""
        ...

    async def resume(self, fence: Fence) -> Turn:
        """Rows 23 and 25: a turn whose sandbox is still there runs again."""
        ...

    async def park(self, fence: Fence, events: Sequence[NewEvent]) -> None:
        """Nobody holds the turn any more; one whose pause is resolved goes back to starting at once (row 24)."""
        ...

    async def expire_pauses(self, limit: int) -> int:
        """Rows 25, 25a and 26 for pauses whose time is over; how many there were."""
        ...

    async def withdrawals(self, limit: int) -> tuple[AskedStep, ...]:
        """Steps whose question the Guardian may still have open, and that nobody waits for any more."""
        ...

    async def forget_withdrawal(self, asked: AskedStep) -> None:
        """The Guardian has closed that question, or never will."""
        ...

    async def approval_rules(self, session_id: str) -> tuple[ApprovalRule, ...]: ...
