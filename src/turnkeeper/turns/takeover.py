"""Whose turns may be taken over (contract 6 and 7): of a worker that is known to be gone, or whose leases stand still.

A lease is a number that its worker moves. Who takes over has watched it not move for a whole lease on a clock of its
own that only runs forward, so neither a clock that is set nor two hosts that disagree make a healthy worker look dead.
Answers for which turns these are; the store's transaction decides, by the same number, whether it is still so.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.model import Hold


class OwnerTaken(TurnkeeperError):
    """Another live worker has this name."""

    code = "owner_taken"


class Liveness(Protocol):
    """Who can tell of a worker's end sooner than its leases: the kernel that frees its lock, or the database."""

    async def gone(self, owners: Collection[str]) -> frozenset[str]:
        """Those of `owners` that have certainly ended. Who is not in it may live."""
        ...


class NoLiveness:
    """Nobody tells: only leases count."""

    async def gone(self, owners: Collection[str]) -> frozenset[str]:
        """Nobody of them, as far as is known."""
        return frozenset()


class LeaseWatch:
    """What one worker has seen of the others' leases."""

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._seen: dict[str, tuple[Hold, int]] = {}

    def lapsed(self, holds: Sequence[Hold], gone: Collection[str], now_ms: int) -> tuple[Hold, ...]:
        """Those of the holds there are now that may be taken over. `now_ms` is this process's monotonic time."""
        self._seen = {hold.fence.turn_id: (hold, self._since(hold, now_ms)) for hold in holds}
        return tuple(
            hold for hold, since in self._seen.values() if hold.fence.owner in gone or now_ms - since >= self._ttl_ms
        )

    def _since(self, hold: Hold, now_ms: int) -> int:
        earlier, since = self._seen.get(hold.fence.turn_id, (None, now_ms))
        return since if earlier == hold else now_ms
