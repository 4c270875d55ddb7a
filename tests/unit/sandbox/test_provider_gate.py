"""Who may call a provider next, and how long anybody waits for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from turnkeeper.clock import SystemClock
from turnkeeper.sandbox.provider_gate import ProviderBusy, ProviderGate
from turnkeeper.sandbox.providers import ProviderLimits


def gate_of(*, window_ms: int = 60_000, max_wait_ms: int = 10_000, **limits: int) -> ProviderGate:
    return ProviderGate(ProviderLimits(max_wait_ms=max_wait_ms, **limits), SystemClock(), window_ms=window_ms)


async def settled(*waiting: "asyncio.Task[Any]") -> None:
    """Lets everybody come as far as they can without the others."""
    for _ in range(10 * len(waiting) + 10):
        await asyncio.sleep(0)


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 60))


def test_without_limits_nobody_waits() -> None:
    async def scene() -> None:
        gate = gate_of()
        async with gate.entered("a"), gate.entered("a"), gate.entered("b"):
            assert gate.waiting == 0

    play(scene())


def test_a_turn_that_asks_for_much_delays_the_others_by_one_call_each() -> None:
    async def scene() -> None:
        gate, order = gate_of(max_calls_at_once=1), list[str]()

        async def call(turn: str) -> None:
            async with gate.entered(turn):
                order.append(turn)
                await asyncio.sleep(0)

        async with gate.entered("first"):
            callers = [asyncio.ensure_future(call(turn)) for turn in ("a", "a", "a", "b", "c", "b")]
            await settled(*callers)
            assert gate.waiting == 6
        await asyncio.gather(*callers)
        assert order == ["a", "b", "c", "a", "b", "a"]

    play(scene())


def test_no_wait_is_longer_than_its_bound_and_nothing_is_lost_by_it() -> None:
    async def scene() -> None:
        gate = gate_of(max_calls_at_once=1, max_wait_ms=1)
        async with gate.entered("a"):
            with pytest.raises(ProviderBusy):
                async with gate.entered("b"):
                    raise AssertionError("it was let in")
        async with gate.entered("b"):
            assert gate.waiting == 0

    play(scene())


def test_a_caller_that_leaves_gives_its_place_to_the_next() -> None:
    async def scene() -> None:
        gate, done = gate_of(max_calls_at_once=1), asyncio.Event()

        async def call(turn: str) -> None:
            async with gate.entered(turn):
                done.set()

        async with gate.entered("a"):
            leaver, stayer = asyncio.ensure_future(call("b")), asyncio.ensure_future(call("c"))
            await settled(leaver, stayer)
            leaver.cancel()
            await settled(leaver)
            assert gate.waiting == 1
        await stayer
        assert done.is_set()

    play(scene())


def test_a_caller_canceled_in_the_moment_it_was_let_in_leaves_no_trace() -> None:
    async def scene() -> None:
        gate = gate_of(max_calls_at_once=1)

        async def call() -> None:
            async with gate.entered("b"):
                raise AssertionError("it was let in")

        async with gate.entered("a"):
            caller = asyncio.ensure_future(call())
            await settled(caller)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        async with gate.entered("c"):
            assert gate.waiting == 0

    play(scene())


def test_calls_over_the_rate_wait_for_the_window() -> None:
    async def scene() -> None:
        gate = gate_of(max_calls_per_minute=2, window_ms=30)
        entered = 0
        for _ in range(5):
            async with gate.entered("a"):
                entered += 1
        assert entered == 5

    play(scene())


def test_a_rate_that_leaves_no_room_in_time_is_busy() -> None:
    async def scene() -> None:
        gate = gate_of(max_calls_per_minute=1, max_wait_ms=5)
        async with gate.entered("a"):
            pass
        with pytest.raises(ProviderBusy):
            async with gate.entered("a"):
                raise AssertionError("it was let in")

    play(scene())
