"""Deadlines, pauses and interrupts, with time that moves by hand."""

import asyncio
import gc
from typing import Any

import pytest

from turnkeeper.testing.fake_clock import FakeClock
from turnkeeper.turns.interrupts import Interrupt, Interrupted, Interrupts
from turnkeeper.turns.timing import Patience, within


async def ticks(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def forever() -> None:
    await asyncio.Event().wait()


async def at_once() -> str:
    return "done"


def test_work_that_is_done_in_time_gives_its_result_and_leaves_no_timer() -> None:
    async def main() -> None:
        clock = FakeClock()
        assert await within(clock, at_once(), timeout_ms=10) == "done"
        assert clock.sleepers == 0

    asyncio.run(main())


def test_work_that_is_not_done_in_time_is_let_go_of() -> None:
    async def main() -> None:
        clock, let_go = FakeClock(), asyncio.Event()

        async def work() -> None:
            try:
                await forever()
            finally:
                let_go.set()

        waiting = asyncio.ensure_future(within(clock, work(), timeout_ms=10))
        await ticks()
        clock.advance(10)
        with pytest.raises(TimeoutError):
            await waiting
        assert let_go.is_set()

    asyncio.run(main())


def test_what_work_raises_comes_through() -> None:
    async def fails() -> None:
        raise KeyError("its own")

    with pytest.raises(KeyError):
        asyncio.run(within(FakeClock(), fails(), timeout_ms=10))


def test_what_work_raises_while_its_waiter_is_leaving_is_not_lost_on_the_loop() -> None:
    async def main() -> list[dict[str, Any]]:
        unread: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))
        told = asyncio.Event()

        async def fails() -> None:
            await told.wait()
            raise KeyError("its own")

        waiting = asyncio.ensure_future(within(FakeClock(), fails(), timeout_ms=10))
        await ticks()
        told.set()
        waiting.cancel()
        await asyncio.wait({waiting})
        gc.collect()
        return unread

    assert asyncio.run(main()) == []


def test_patience_pauses_longer_each_time_and_never_past_its_end() -> None:
    async def main() -> list[int]:
        clock = FakeClock(autojump=True)
        patience = Patience(clock, clock, 100, first_ms=10, max_ms=40)
        moments: list[int] = []
        while patience.left_ms > 0:
            await patience.pause()
            moments.append(clock.monotonic_ms())
        return moments

    assert asyncio.run(main()) == [10, 30, 70, 100]


def test_the_first_interrupt_is_the_one_that_counts() -> None:
    async def main() -> None:
        interrupts = Interrupts(FakeClock())
        interrupts.fire(Interrupt.TIME_OVER)
        interrupts.fire(Interrupt.CANCEL)
        with pytest.raises(Interrupted) as caught:
            await interrupts.give_way(forever())
        assert caught.value.interrupt is Interrupt.TIME_OVER

    asyncio.run(main())


def test_finished_work_wins_over_an_interrupt() -> None:
    async def main() -> None:
        interrupts = Interrupts(FakeClock())
        work = asyncio.ensure_future(interrupts.give_way(at_once()))
        await ticks(1)
        interrupts.fire(Interrupt.CANCEL)
        assert await work == "done"

    asyncio.run(main())


def test_a_disarmed_timer_interrupts_nothing() -> None:
    async def main() -> None:
        clock = FakeClock()
        interrupts = Interrupts(clock)
        interrupts.after(10, Interrupt.BUDGET_IGNORED)
        await ticks()
        interrupts.disarm(Interrupt.BUDGET_IGNORED)
        await ticks()
        clock.advance(20)
        assert await interrupts.give_way(at_once()) == "done"
        await interrupts.close()

    asyncio.run(main())


def test_an_event_interrupts_work_that_waits() -> None:
    async def main() -> None:
        interrupts, asked = Interrupts(FakeClock()), asyncio.Event()
        interrupts.when(asked, Interrupt.CANCEL)
        work = asyncio.ensure_future(interrupts.give_way(forever()))
        await ticks()
        asked.set()
        with pytest.raises(Interrupted):
            await work
        await interrupts.close()

    asyncio.run(main())
