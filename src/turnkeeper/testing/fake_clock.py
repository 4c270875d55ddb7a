"""A clock that moves when a test says so, and wakes who sleeps on it.

Keeps the promises of `Clock` and of the worker's `Waiter`: monotonic time never goes back, nobody wakes early. The wall
clock may jump, as one does that an operator or a time server puts right.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)
PATIENCE_TICKS: Final = 50


class FakeClock:
    """Wall time and monotonic time that advance together, by hand.

    With `autojump` nobody needs to move it: a sleep that nothing ends within `PATIENCE_TICKS` turns of the event loop
    jumps to its end. Not for work that waits on threads or sockets, which takes more turns than that.
    """

    def __init__(self, start: datetime = START, *, autojump: bool = False) -> None:
        self._now = start
        self._monotonic_ms = 0
        self._autojump = autojump
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """The wall time, aware and in UTC."""
        return self._now

    def monotonic_ms(self) -> int:
        """Milliseconds since this clock was made."""
        return self._monotonic_ms

    def jump(self, delay_ms: int) -> None:
        """Somebody sets the wall clock, forward or back; monotonic time goes on as it was."""
        self._now += timedelta(milliseconds=delay_ms)

    def advance(self, delay_ms: int) -> None:
        """Moves both times forward and wakes every sleeper whose time has come."""
        if delay_ms < 0:
            raise ValueError("time does not go back")
        self._now += timedelta(milliseconds=delay_ms)
        self._monotonic_ms += delay_ms
        waiting = [(due_ms, sleeper) for due_ms, sleeper in self._sleepers if not sleeper.done()]
        self._sleepers = [(due_ms, sleeper) for due_ms, sleeper in waiting if due_ms > self._monotonic_ms]
        for due_ms, sleeper in waiting:
            if due_ms <= self._monotonic_ms:
                sleeper.set_result(None)

    async def sleep(self, delay_ms: int) -> None:
        """Returns once the clock has advanced by `delay_ms`."""
        if self._autojump:
            due_ms = self._monotonic_ms + delay_ms
            for _ in range(PATIENCE_TICKS):
                await asyncio.sleep(0)
            self.advance(max(due_ms - self._monotonic_ms, 0))
            return
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._monotonic_ms + delay_ms, sleeper))
        await sleeper

    @property
    def sleepers(self) -> int:
        """How many are waiting on this clock."""
        return sum(not sleeper.done() for _, sleeper in self._sleepers)
