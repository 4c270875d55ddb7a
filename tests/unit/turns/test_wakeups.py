"""News inside one process: none lost between a read and a wait, nothing kept for nobody."""

import asyncio
import threading

import pytest

from turnkeeper.turns.wakeups import LocalWakeups, TooManyWatches

LONG_MS = 20_000


def test_news_between_the_watch_and_the_wait_is_not_lost() -> None:
    async def main() -> bool:
        wakeups = LocalWakeups()
        with wakeups.watch("ses_1") as watch:
            wakeups.notify("ses_1")
            return await watch.wait(timeout_ms=LONG_MS)

    assert asyncio.run(main())


def test_news_of_another_topic_wakes_nobody() -> None:
    async def main() -> bool:
        wakeups = LocalWakeups()
        with wakeups.watch("ses_1") as watch:
            wakeups.notify("ses_2")
            return await watch.wait(timeout_ms=10)

    assert not asyncio.run(main())


def test_one_piece_of_news_ends_one_wait() -> None:
    async def main() -> tuple[bool, bool]:
        wakeups = LocalWakeups()
        with wakeups.watch("ses_1") as watch:
            wakeups.notify("ses_1")
            return await watch.wait(timeout_ms=LONG_MS), await watch.wait(timeout_ms=10)

    assert asyncio.run(main()) == (True, False)


def test_news_from_another_thread_wakes_every_watch_of_the_topic() -> None:
    async def main() -> tuple[bool, bool]:
        wakeups = LocalWakeups()
        with wakeups.watch("queue") as first, wakeups.watch("queue") as second:
            thread = threading.Thread(target=wakeups.notify, args=("queue",))
            thread.start()
            heard = await first.wait(timeout_ms=LONG_MS), await second.wait(timeout_ms=LONG_MS)
            thread.join()
            return heard

    assert asyncio.run(main()) == (True, True)


def test_a_wait_by_topic_ends_with_the_news() -> None:
    async def main() -> None:
        wakeups = LocalWakeups()
        waiting = asyncio.create_task(wakeups.wait("queue", timeout_ms=LONG_MS))
        await asyncio.sleep(0)
        wakeups.notify("queue")
        async with asyncio.timeout(10):
            await waiting

    asyncio.run(main())


def test_more_watches_than_the_limit_are_refused_and_a_closed_one_makes_room() -> None:
    async def main() -> None:
        wakeups = LocalWakeups(max_watches=1)
        with wakeups.watch("a"), pytest.raises(TooManyWatches), wakeups.watch("b"):
            pass
        with wakeups.watch("b"):
            pass

    asyncio.run(main())


def test_news_after_the_event_loop_has_ended_is_ignored() -> None:
    wakeups = LocalWakeups()

    async def main() -> None:
        context = wakeups.watch("queue")
        context.__enter__()
        kept.append(context)

    kept: list[object] = []
    asyncio.run(main())
    wakeups.notify("queue")
