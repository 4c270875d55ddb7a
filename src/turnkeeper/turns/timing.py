"""Waiting as something that is handed in: pauses and deadlines that a test can move by hand.

Answers for sleeping and for giving up on work whose time is over. Never measures: durations come from `Clock`.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from turnkeeper.clock import Clock
from turnkeeper.turns.ports import Wakeups

T = TypeVar("T")


class Waiter(Protocol):
    """Where time passes."""

    async def sleep(self, delay_ms: int) -> None:
        """Returns after at least `delay_ms`."""
        ...


class LoopWaiter:
    """The event loop's own time."""

    async def sleep(self, delay_ms: int) -> None:
        """Returns after at least `delay_ms`."""
        await asyncio.sleep(delay_ms / 1000)


class Patience:
    """The time there is for something, and pauses within it that double up to a limit."""

    def __init__(self, clock: Clock, waiter: Waiter, deadline_ms: int, *, first_ms: int, max_ms: int) -> None:
        self._clock = clock
        self._waiter = waiter
        self._deadline_ms = deadline_ms
        self._pause_ms = first_ms
        self._max_ms = max_ms

    @property
    def left_ms(self) -> int:
        """Never below zero."""
        return max(self._deadline_ms - self._clock.monotonic_ms(), 0)

    async def pause(self) -> None:
        """Waits before the next try, at most until the time is up."""
        await self._waiter.sleep(min(self._pause_ms, self.left_ms))
        self._pause_ms = min(self._pause_ms * 2, self._max_ms)


async def stop_task(task: asyncio.Future[Any]) -> None:
    """Cancels a task and waits until it has let go of everything; what it raised is dropped."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        # Reading it marks it as seen; whoever stops a task has its own reason to end.
        task.exception()


async def within(waiter: Waiter, work: Coroutine[Any, Any, T], *, timeout_ms: int) -> T:
    """The result of `work`. Raises `TimeoutError` once `timeout_ms` have passed; the work is canceled then."""
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(waiter.sleep(timeout_ms))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise TimeoutError
    finally:
        await stop_task(timer)
        # It may have ended meanwhile; what it raised then is read by nobody else.
        await stop_task(task)


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which a cancel does not cut in two: it is done first, then the cancel goes on."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise


@asynccontextmanager
async def news_of(wakeups: Wakeups, topic: str, *, timeout_ms: int) -> AsyncGenerator[asyncio.Task[None]]:
    """A wait for news that has begun before the body runs, so that what the body reads and misses is still heard."""
    waiting = asyncio.create_task(wakeups.wait(topic, timeout_ms=timeout_ms))
    try:
        await asyncio.sleep(0)
        yield waiting
    finally:
        await stop_task(waiting)
