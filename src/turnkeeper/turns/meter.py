"""The turn's ledger as the model gateway uses it (contract 8): the worker's fence on every reservation.

Answers for noticing that a budget stopped the turn; only a refused reservation says so, never the harness.
"""

from collections.abc import Callable

from turnkeeper.turns.model import CallGrant, CallRecord, Fence
from turnkeeper.turns.ports import BudgetSpent, TurnStore


class LedgerMeter:
    """`box_ports.TurnMeter` over the store."""

    def __init__(self, store: TurnStore, fence: Callable[[], Fence]) -> None:
        self._store = store
        self._fence = fence
        self.spent = False
        self.on_spent: Callable[[], None] | None = None

    async def reserve(self, *, input_tokens: int, max_output_tokens: int) -> CallGrant:
        """A reservation, its output cap perhaps lowered. Raises `BudgetSpent`, `StaleFence`."""
        try:
            return await self._store.reserve(
                self._fence(), input_tokens=input_tokens, max_output_tokens=max_output_tokens
            )
        except BudgetSpent:
            self.spent = True
            if self.on_spent is not None:
                self.on_spent()
            raise

    async def settle(self, record: CallRecord) -> None:
        """Ends a reservation."""
        await self._store.settle(self._fence(), record)
