"""What may stop a running turn from outside, and work that gives way to it.

Answers for the first interrupt winning and for work that is let go of before anybody hears of the interrupt. Finished
work wins over an interrupt that comes in the same moment.
"""

import asyncio
from collections.abc import Coroutine
from enum import StrEnum
from typing import Any, TypeVar

from turnkeeper.turns.timing import Waiter, stop_task

T = TypeVar("T")


class Interrupt(StrEnum):
    """Why a turn stops."""

    CANCEL = "cancel"
    TIME_OVER = "time_over"
    TIME_SPENT = "time_spent"
    BUDGET_IGNORED = "budget_ignored"


class Interrupted(Exception):
    """The turn is to stop now."""

    def __init__(self, interrupt: Interrupt) -> None:
        super().__init__(interrupt)
        self.interrupt = interrupt


class Interrupts:
    """The interrupts of one turn."""

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._first: asyncio.Future[Interrupt] = asyncio.get_running_loop().create_future()
        self._timers: dict[Interrupt, asyncio.Task[None]] = {}
        self._disarmed: list[asyncio.Task[None]] = []

    def fire(self, interrupt: Interrupt) -> None:
        """The turn is to stop. Only the first interrupt counts."""
        if not self._first.done():
            self._first.set_result(interrupt)

    def after(self, delay_ms: int, interrupt: Interrupt) -> None:
        """Fires in `delay_ms`, unless that timer runs already."""
        if interrupt not in self._timers:
            self._timers[interrupt] = asyncio.ensure_future(self._fire_later(delay_ms, interrupt))

    def when(self, event: asyncio.Event, interrupt: Interrupt) -> None:
        """Fires once the event is set."""
        if interrupt not in self._timers:
            self._timers[interrupt] = asyncio.ensure_future(self._fire_when(event, interrupt))

    def disarm(self, interrupt: Interrupt) -> None:
        """Stops that timer, if it runs; it may be set again."""
        timer = self._timers.pop(interrupt, None)
        if timer is not None:
            timer.cancel()
            self._disarmed.append(timer)

    async def give_way(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. Raises `Interrupted` once the turn is to stop; the work has been let go of then."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._first}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Interrupted(self._first.result())
        finally:
            if not task.done():
                await stop_task(task)

    async def close(self) -> None:
        """Stops every timer."""
        for timer in (*self._timers.values(), *self._disarmed):
            await stop_task(timer)
        self._timers.clear()
        self._disarmed.clear()

    async def _fire_later(self, delay_ms: int, interrupt: Interrupt) -> None:
        await self._waiter.sleep(delay_ms)
        self.fire(interrupt)

    async def _fire_when(self, event: asyncio.Event, interrupt: Interrupt) -> None:
        await event.wait()
        self.fire(interrupt)
