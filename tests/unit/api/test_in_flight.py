"""One request of a key at a time in one process, and no wait without an end (contract 9)."""

import asyncio

import pytest

from turnkeeper.api.in_flight import KeysInFlight
from turnkeeper.turns.idempotency import IdempotencyInProgress

HERE, THERE = "prj_1", "prj_2"


def test_the_second_request_waits_for_the_first() -> None:
    async def main() -> list[str]:
        keys, seen, begun = KeysInFlight(), list[str](), asyncio.Event()

        async def second() -> None:
            await begun.wait()
            async with keys.held(HERE, "k"):
                seen.append("second")

        waiting = asyncio.create_task(second())
        async with keys.held(HERE, "k"):
            begun.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append("first")
        await waiting
        return seen

    assert asyncio.run(main()) == ["first", "second"]


def test_the_second_request_is_told_to_come_again_where_the_first_takes_too_long() -> None:
    async def main() -> None:
        keys = KeysInFlight(wait_ms=10)
        async with keys.held(HERE, "k"):
            with pytest.raises(IdempotencyInProgress):
                async with keys.held(HERE, "k"):
                    raise AssertionError("two requests of one key at the same time")
            async with keys.held(THERE, "k"), keys.held(HERE, "l"), keys.held(HERE, None), keys.held(HERE, None):
                pass
        async with keys.held(HERE, "k"):
            pass

    asyncio.run(main())


def test_nothing_is_kept_of_requests_that_are_over() -> None:
    async def main() -> int:
        keys = KeysInFlight(wait_ms=10)
        with pytest.raises(ValueError, match="x"):
            async with keys.held(HERE, "k"):
                raise ValueError("x")
        async with keys.held(HERE, "k"):
            pass
        return keys.count

    assert asyncio.run(main()) == 0
