"""Waiting as something that is handed in, and work that a cancellation may delay but not prevent.

Answers for deadlines of the client. Must never measure with the wall clock.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from turnkeeper.clock import Clock, SystemClock

T = TypeVar("T")


class Time(Clock, Protocol):
    """A clock on which one can also sleep."""

    async def sleep(self, delay_ms: int) -> None:
        """Returns after at least `delay_ms`."""
        ...


class SystemTime(SystemClock):
    """The machine's clock and the event loop's sleep."""

    async def sleep(self, delay_ms: int) -> None:
        """Returns after at least `delay_ms`."""
        await asyncio.sleep(delay_ms / 1000)


async def is_done_within(time: Time, task: "asyncio.Future[Any]", timeout_ms: int) -> bool:
    """Whether the task ends within the time. It goes on if not; a cancellation of the caller reaches it."""
    timer = asyncio.ensure_future(time.sleep(timeout_ms))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        task.cancel()
        raise
    finally:
        timer.cancel()
    return task.done()


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """The result of work that runs to its end even when its caller is canceled; the cancellation comes after it."""
    task = asyncio.ensure_future(work)
    canceled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            canceled = error
    if canceled is None:
        return task.result()
    if not task.cancelled():
        # Reading it marks it as seen: the cancellation is what the caller gets.
        task.exception()
    raise canceled
