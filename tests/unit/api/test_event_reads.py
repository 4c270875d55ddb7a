"""Shared reads: one for all who ask together, and never an older one."""

import asyncio
from collections.abc import Sequence

import pytest

from turnkeeper.api.event_reads import EventReads
from turnkeeper.api.sse import Framed
from turnkeeper.events.envelope import Event


class Source:
    """A store that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, str | None]] = []
        self.open = asyncio.Event()
        self.failure: Exception | None = None

    async def events(
        self, session_id: str, *, after: int, limit: int, types: Sequence[str] = (), turn_id: str | None = None
    ) -> tuple[Event, ...]:
        assert (limit, types) == (32, ())
        self.asked.append((session_id, after, turn_id))
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return ()


async def ask(reads: EventReads, source: Source, after: int = 1, turn_id: str | None = None) -> tuple[Framed, ...]:
    return await reads.after(source, "ses", after, limit=32, turn_id=turn_id)


def test_those_who_ask_together_share_a_read_and_others_do_not() -> None:
    async def main() -> None:
        reads, source = EventReads(), Source()
        source.open.set()
        wanted = [(1, None)] * 100 + [(2, None), (1, "trn")]
        await asyncio.gather(*[ask(reads, source, after, turn_id) for after, turn_id in wanted])
        assert sorted(source.asked, key=str) == [("ses", 1, "trn"), ("ses", 1, None), ("ses", 2, None)]

    asyncio.run(main())


def test_a_read_that_has_begun_is_joined_by_nobody() -> None:
    async def main() -> None:
        reads, source = EventReads(), Source()
        first = asyncio.create_task(ask(reads, source))
        while not source.asked:
            await asyncio.sleep(0)
        second = asyncio.create_task(ask(reads, source))
        while len(source.asked) < 2:
            await asyncio.sleep(0)
        source.open.set()
        await asyncio.gather(first, second)

    asyncio.run(main())


def test_who_goes_away_takes_the_read_from_nobody_and_a_failure_reaches_all() -> None:
    async def main() -> None:
        reads, source = EventReads(), Source()
        source.failure = ValueError("no")
        asking = [asyncio.create_task(ask(reads, source)) for _ in range(3)]
        while not source.asked:
            await asyncio.sleep(0)
        asking[0].cancel()
        source.open.set()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, ValueError, ValueError]
        assert len(source.asked) == 1
        with pytest.raises(ValueError, match="no"):
            await ask(reads, source)

    asyncio.run(main())
