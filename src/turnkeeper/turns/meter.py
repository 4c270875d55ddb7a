"""The turn's ledger as the model gateway uses it (contract 8): the worker's fence on every reservation.

Answers for noticing that a budget stopped the turn; only a refusal of the ledger says so, never the harness.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from turnkeeper.events.catalogue import model_retrying
from turnkeeper.turns.model import CallGrant, CallRecord, Fence, ModelChoice
from turnkeeper.turns.ports import BudgetSpent, StaleFence, TurnStore


class LedgerMeter:
    """`box_ports.TurnMeter` over the store.

    `elapsed_ms` says how long the turn has run. `on_spent` and `on_granted` are told of a refusal and of each grant.
    `last` is the latest call that a provider took. `wraps_up` once so little is left that the agent is to finish.
    `closed` refuses every further call. `thread_id` is the subagent's that is at work.
    """

    def __init__(self, store: TurnStore, fence: Callable[[], Fence]) -> None:
        self._store = store
        self._fence = fence
        self.spent = False
        self.closed = False
        self.wraps_up = False
        self.attempt: int | None = None
        self.last: CallRecord | None = None
        self.thread_id: str | None = None
        self.elapsed_ms: Callable[[], int] = lambda: 0
        self.on_spent: Callable[[], None] | None = None
        self.on_granted: Callable[[CallGrant], None] | None = None

    async def reserve(self, *, input_tokens: int, max_output_tokens: int) -> CallGrant:
        """A reservation, its output cap perhaps lowered. Raises `BudgetSpent`, `StaleFence`."""
        if self.closed:
            raise BudgetSpent("the turn's budget is reached")
        try:
            grant = await self._store.reserve(
                self._fence(),
                input_tokens=input_tokens,
                max_output_tokens=max_output_tokens,
                active_ms=self.elapsed_ms(),
                thread_id=self.thread_id,
            )
        except BudgetSpent:
            self.spend()
            raise
        if self.on_granted is not None:
            self.on_granted(grant)
        return grant

    async def settle(self, record: CallRecord) -> None:
        """Ends a reservation."""
        if record.accepted:
            self.last = record
        self.wraps_up = await self._store.settle(self._fence(), record) or self.wraps_up

    async def retrying(self, model: ModelChoice, *, status: int | None, delay_ms: int, try_number: int) -> None:
        """Says so in the turn's events; a turn that is somebody else's now hears of it from its new worker."""
        fence = self._fence()
        event = model_retrying(
            turn_id=fence.turn_id,
            attempt=self.attempt,
            provider=model.provider,
            model=model.id,
            status=status,
            delay_ms=delay_ms,
            try_number=try_number,
        )
        with suppress(StaleFence):
            await self._store.record(fence, [replace(event, thread_id=self.thread_id)])

    def spend(self) -> None:
        """A budget over the turn is reached."""
        self.spent = True
        if self.on_spent is not None:
            self.on_spent()

    def close(self) -> None:
        """A budget of something else than model calls is reached: the agent says no more."""
        self.closed = True
        self.spend()
