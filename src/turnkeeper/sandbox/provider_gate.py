"""How much all turns together may ask of one provider at a time and in a minute, and who is next.

Turns wait in turn: whoever has had a call waits behind those who have had none since, so that a turn that asks for
much delays the others by one call each. No wait is longer than the provider's bound.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from turnkeeper.clock import Clock
from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.providers import ProviderLimits

MINUTE_MS: Final = 60_000


class ProviderBusy(TurnkeeperError):
    """No call could be made within the time that one may wait."""

    code = "provider_busy"


class ProviderGate:
    """The door to one provider, for one process. `turn` is any value that tells the callers apart."""

    def __init__(self, limits: ProviderLimits, clock: Clock, *, window_ms: int = MINUTE_MS) -> None:
        self._limits = limits
        self._clock = clock
        self._window_ms = window_ms
        self._running = 0
        self._recent_ms: deque[int] = deque()
        self._waiting: OrderedDict[object, deque[asyncio.Future[None]]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Calls that wait."""
        return sum(len(queue) for queue in self._waiting.values())

    @asynccontextmanager
    async def entered(self, turn: object) -> AsyncGenerator[None]:
        """One call may be made inside the block. Raises `ProviderBusy`."""
        await self._enter(turn)
        try:
            yield
        finally:
            self._running -= 1
            self._admit()

    async def _enter(self, turn: object) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(turn, deque()).append(place)
        self._admit()
        try:
            async with asyncio.timeout(self._limits.max_wait_ms / 1000):
                await place
        except BaseException as error:
            self._leave(turn, place)
            if isinstance(error, TimeoutError):
                raise ProviderBusy(f"no call could be made within {self._limits.max_wait_ms} ms") from error
            raise

    def _leave(self, turn: object, place: asyncio.Future[None]) -> None:
        if place.done() and not place.cancelled():
            # Admitted in the very moment it gave up.
            self._running -= 1
        else:
            queue = self._waiting.get(turn, deque())
            if place in queue:
                queue.remove(place)
            if not queue:
                self._waiting.pop(turn, None)
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._has_room():
            turn, queue = next(iter(self._waiting.items()))
            place = queue.popleft()
            self._waiting.pop(turn)
            if queue:
                self._waiting[turn] = queue
            if place.done():
                continue
            self._running += 1
            if self._limits.max_calls_per_minute is not None:
                self._recent_ms.append(self._clock.monotonic_ms())
            place.set_result(None)
        self._set_timer()

    def _has_room(self) -> bool:
        at_once, rate = self._limits.max_calls_at_once, self._limits.max_calls_per_minute
        horizon_ms = self._clock.monotonic_ms() - self._window_ms
        while self._recent_ms and self._recent_ms[0] <= horizon_ms:
            self._recent_ms.popleft()
        return (at_once is None or self._running < at_once) and (rate is None or len(self._recent_ms) < rate)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rate = self._limits.max_calls_per_minute
        if self._waiting and rate is not None and len(self._recent_ms) >= rate:
            wait_ms = self._recent_ms[0] + self._window_ms - self._clock.monotonic_ms()
            self._timer = asyncio.get_running_loop().call_later(max(wait_ms, 1) / 1000, self._admit)
