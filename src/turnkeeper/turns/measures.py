"""What a worker measures as it goes (contract 17): where it says so, and what one of the figures is.

Pure. Answers for the moments; who counts, and under which names, is not decided here.
"""

from typing import Protocol

from turnkeeper.turns.budgets import Taken, gauges
from turnkeeper.turns.model import Turn
from turnkeeper.turns.money import Money
from turnkeeper.turns.usage import totals


class WorkerMeasures(Protocol):
    """Where a worker says what it saw. Durations are in milliseconds."""

    def decided(self, method: str, decision: str) -> None:
        """A step was answered: the disposition, or `refused`."""
        ...

    def undecided(self, method: str) -> None:
        """No answer came for a step in its time."""
        ...

    def stopped(self, cancel_to_dead_ms: int) -> None:
        """A turn that had been asked to stop is over, and its boxes are gone."""
        ...

    def recovered(self, recovery_ms: int) -> None:
        """A turn whose worker was lost has its ending, or waits for its next attempt."""
        ...

    def overshot(self, ratio: float) -> None:
        """A turn ended at its own budget; by how much of the limit it was over, 0 for not at all."""
        ...


class NoMeasures:
    """Nobody counts."""

    def decided(self, method: str, decision: str) -> None:
        """Drops it."""

    def undecided(self, method: str) -> None:
        """Drops it."""

    def stopped(self, cancel_to_dead_ms: int) -> None:
        """Drops it."""

    def recovered(self, recovery_ms: int) -> None:
        """Drops it."""

    def overshot(self, ratio: float) -> None:
        """Drops it."""


def overshoot_ratio(turn: Turn, active_ms: int) -> float | None:
    """How far beyond its own budget a turn came, by the dimension that is worst off; None for a turn without one.

    Money is left out: what a call costs follows from its tokens, which are in.
    """
    if turn.budget is None:
        return None
    used = totals(turn.usage)
    taken = Taken(used.model_calls, used.total_tokens, used.output_tokens, turn.usage.tool_calls, active_ms)
    ratios = [
        gauge.used / gauge.limit - 1
        for gauge in gauges(turn.budget, taken)
        if not isinstance(gauge.limit, Money) and not isinstance(gauge.used, Money) and gauge.limit > 0
    ]
    return max([0.0, *ratios])
