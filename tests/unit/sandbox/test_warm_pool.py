import asyncio

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sandbox.box_parts import run

from turnkeeper.sandbox.boxes import SandboxUnavailable
from turnkeeper.sandbox.stdio_boxes import StdioLoopBox
from turnkeeper.sandbox.warm_pool import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, WarmPool, pause_ms


@given(st.integers(1, 10_000))
def test_a_pause_grows_with_each_failure_and_is_bounded(failures: int) -> None:
    assert FIRST_PAUSE_MS <= pause_ms(failures) <= pause_ms(failures + 1) <= LONGEST_PAUSE_MS


async def never(_: float) -> None:
    await asyncio.Event().wait()


async def broken() -> StdioLoopBox:
    raise SandboxUnavailable("the harness is broken")


def test_boxes_that_fail_are_tried_more_and_more_rarely() -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 6:
            await never(0)
        await asyncio.sleep(0)

    async def work() -> None:
        pool = WarmPool(1, broken, pause)
        pool.start()
        async with asyncio.timeout(10):
            while len(pauses) < 6:
                await asyncio.sleep(0)
        await pool.stop()

    run(work())
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]


def test_whoever_claims_the_box_being_made_learns_that_it_failed() -> None:
    begun, fail = asyncio.Event(), asyncio.Event()

    async def make() -> StdioLoopBox:
        begun.set()
        await fail.wait()
        raise SandboxUnavailable("the harness is broken")

    async def work() -> list[StdioLoopBox | BaseException | None]:
        pool = WarmPool(1, make, never)
        pool.start()
        await begun.wait()
        claims = [asyncio.create_task(pool.claim()) for _ in range(2)]
        await asyncio.sleep(0)
        fail.set()
        results = await asyncio.gather(*claims, return_exceptions=True)
        await pool.stop()
        return results

    failed, none = run(work())
    assert isinstance(failed, SandboxUnavailable)
    assert none is None


def test_stopping_ends_a_claim() -> None:
    async def work() -> None:
        begun = asyncio.Event()

        async def make() -> StdioLoopBox:
            begun.set()
            await never(0)
            raise AssertionError

        pool = WarmPool(1, make, never)
        pool.start()
        await begun.wait()
        claim = asyncio.create_task(pool.claim())
        await asyncio.sleep(0)
        await pool.stop()
        (result,) = await asyncio.gather(claim, return_exceptions=True)
        assert isinstance(result, SandboxUnavailable)

    run(work())


def test_nothing_is_claimed_when_nothing_is_made() -> None:
    async def work() -> None:
        pool = WarmPool(0, broken, never)
        pool.start()
        assert await pool.claim() is None
        assert pool.take() is None
        await pool.stop()

    run(work())
