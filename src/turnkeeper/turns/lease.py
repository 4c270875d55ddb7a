"""A worker's hold on one turn: renewed while it lives, given up the moment it cannot be (house rule 2).

Answers for the fence every write carries and for hearing of a cancel. `keep` never returns: it raises once the turn is
somebody else's or the lease could not be renewed in time, and whoever runs the turn must then let go of it at once,
boxes first.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from turnkeeper.clock import Clock
from turnkeeper.turns.model import Claim, Fence, Turn
from turnkeeper.turns.ports import StaleFence, StoreUnavailable, TurnStore, Wakeups
from turnkeeper.turns.timing import Waiter, news_of, within

RENEWALS_PER_TTL: Final = 3
NEWS_PAUSE_MS: Final = 50
"""Own writes are news as well; this bounds how often they make a lease look at its row."""


class Lease:
    """One claimed turn."""

    def __init__(
        self,
        store: TurnStore,
        wakeups: Wakeups,
        claim: Claim,
        *,
        clock: Clock,
        waiter: Waiter,
        ttl_ms: int,
        poll_ms: int,
    ) -> None:
        self._store = store
        self._wakeups = wakeups
        self._clock = clock
        self._waiter = waiter
        self._ttl_ms = ttl_ms
        self._poll_ms = poll_ms
        self._renewing = asyncio.Lock()
        self.fence: Fence = claim.fence
        self.turn: Turn = claim.turn
        self.canceled = asyncio.Event()
        self.immediate = asyncio.Event()
        self._notice(claim.turn)

    async def keep(self) -> None:
        """Renews until it is canceled. Raises `StaleFence`, or whatever kept a renewal from its deadline."""
        renewed_ms = self._clock.monotonic_ms()
        while True:
            wait_ms = min(self._poll_ms, self._ttl_ms // RENEWALS_PER_TTL)
            async with news_of(self._wakeups, self.fence.session_id, timeout_ms=wait_ms) as news:
                try:
                    renewed_ms = await self._look(renewed_ms)
                except StoreUnavailable:
                    if self._clock.monotonic_ms() - renewed_ms >= self._ttl_ms:
                        raise
                await asyncio.wait({news})
            await self._waiter.sleep(NEWS_PAUSE_MS)

    async def renumber(self) -> Turn:
        """Row 10: another try to start, under a new fence."""
        async with self._renewing:
            turn = await self._store.retry_start(self.fence)
            self.fence = Fence(turn.id, turn.session_id, self.fence.owner, turn.fence)
        self._notice(turn)
        return turn

    async def _look(self, renewed_ms: int) -> int:
        """Reads the row, and renews when that is due; when the lease was last renewed."""
        ends_ms = renewed_ms + self._ttl_ms
        await self._in_time(self._read(), ends_ms)
        begun_ms = self._clock.monotonic_ms()
        if begun_ms - renewed_ms < self._ttl_ms // RENEWALS_PER_TTL:
            return renewed_ms
        await self._in_time(self._renewed(), ends_ms)
        return begun_ms

    async def _in_time(self, work: Coroutine[Any, Any, Turn], ends_ms: int) -> None:
        # A database that is cut off answers nothing, not even no; the lease ends all the same.
        left_ms = max(ends_ms - self._clock.monotonic_ms(), 0)
        try:
            self._notice(await within(self._waiter, work, timeout_ms=left_ms))
        except TimeoutError as error:
            raise StaleFence("the lease could not be renewed before it ended") from error

    async def _read(self) -> Turn:
        async with self._renewing:
            turn = await self._store.turn(self.fence.turn_id)
            if turn.fence != self.fence.number:
                raise StaleFence(f"{turn.id} is no longer this owner's")
            return turn

    async def _renewed(self) -> Turn:
        async with self._renewing:
            return await self._store.renew(self.fence)

    def _notice(self, turn: Turn) -> None:
        self.turn = turn
        if turn.cancel_mode is not None:
            self.canceled.set()
        if turn.cancel_mode == "immediate":
            self.immediate.set()
