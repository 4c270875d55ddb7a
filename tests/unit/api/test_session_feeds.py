"""One reading for all who follow a session, and nothing lost between a reader's own reading and the feed's."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from turnkeeper.api.session_feeds import SessionFeeds
from turnkeeper.api.sse import Framed
from turnkeeper.events.envelope import Event
from turnkeeper.turns.model import PROJECT_ID
from turnkeeper.turns.wakeups import LocalWakeups

DEADLINE_S = 20


def event(sequence: int) -> Event:
    at = datetime(2026, 12, 1, tzinfo=UTC)
    return Event(f"evt_{sequence}", "t", at, "platform", PROJECT_ID, "ses", None, sequence, None, "{}")


@dataclass
class Source:
    """A store of one session's events that counts its readings."""

    news: LocalWakeups = field(default_factory=LocalWakeups)
    stored: list[Event] = field(default_factory=list[Event])
    readings: int = 0
    failure: Exception | None = None

    @property
    def store(self) -> "Source":
        return self

    async def events(
        self, session_id: str, *, after: int, limit: int, types: Sequence[str] = (), turn_id: str | None = None
    ) -> tuple[Event, ...]:
        assert (session_id, types, turn_id) == ("ses", (), None)
        await asyncio.sleep(0)
        self.readings += 1
        if self.failure is not None:
            raise self.failure
        return tuple(one for one in self.stored if one.sequence > after)[:limit]

    def commit(self, *sequences: int) -> None:
        self.stored += [event(sequence) for sequence in sequences]
        self.news.notify("ses")


@dataclass
class Reader:
    """What one seat was given, of which it has room for `room`."""

    room: int = 1_000
    taken: list[int] = field(default_factory=list[int])
    full: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, one: Framed) -> bool:
        if len(self.taken) == self.room:
            return False
        self.taken.append(one.event.sequence)
        if len(self.taken) == self.room:
            self.full.set()
        return True


def run(work: Callable[[SessionFeeds, Source], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work(SessionFeeds(), Source())

    asyncio.run(main())


async def followed(feeds: SessionFeeds, source: Source, reader: Reader, ready: asyncio.Event) -> None:
    with feeds.join(source, "ses", reader.take, head=0, poll_ms=600_000) as seat:
        seat.read_alone()
        ready.set()
        await seat.follow()


async def quiet(source: Source) -> None:
    """Until the feed has read and waits for news."""
    readings = -1
    while readings != source.readings:
        readings = source.readings
        for _ in range(10):
            await asyncio.sleep(0)


def test_an_event_is_read_once_however_many_follow_the_session() -> None:
    async def work(feeds: SessionFeeds, source: Source) -> None:
        readers = [Reader(room=2) for _ in range(50)]
        ready = asyncio.Event()
        following = [asyncio.create_task(followed(feeds, source, reader, ready)) for reader in readers]
        await ready.wait()
        await quiet(source)
        before = source.readings
        source.commit(1, 2)
        await asyncio.gather(*(reader.full.wait() for reader in readers))
        assert [reader.taken for reader in readers] == [[1, 2]] * 50
        assert source.readings == before + 1
        for task in following:
            task.cancel()

    run(work)


def test_what_is_committed_while_a_reader_reads_alone_sends_it_reading_again() -> None:
    async def work(feeds: SessionFeeds, source: Source) -> None:
        reader = Reader()
        with feeds.join(source, "ses", reader.take, head=0, poll_ms=600_000) as seat:
            seat.read_alone()
            source.commit(1)
            await quiet(source)
            await seat.follow()
            assert reader.taken == []
            seat.read_alone()
            following = asyncio.create_task(seat.follow())
            await quiet(source)
            assert not following.done()
            following.cancel()

    run(work)


def test_a_reader_without_room_is_handed_no_more_until_it_has_read_alone() -> None:
    async def work(feeds: SessionFeeds, source: Source) -> None:
        reader = Reader(room=1)
        with feeds.join(source, "ses", reader.take, head=0, poll_ms=600_000) as seat:
            seat.read_alone()
            following = asyncio.create_task(seat.follow())
            await quiet(source)
            source.commit(1, 2)
            await following
            reader.room = 3
            source.commit(3)
            await quiet(source)
            assert reader.taken == [1]

    run(work)


def test_a_reading_that_fails_is_told_to_everybody_and_a_new_reader_begins_anew() -> None:
    async def work(feeds: SessionFeeds, source: Source) -> None:
        source.failure = ValueError("no")
        with (
            feeds.join(source, "ses", Reader().take, head=0, poll_ms=600_000) as first,
            feeds.join(source, "ses", Reader().take, head=0, poll_ms=600_000) as second,
        ):
            for seat in (first, second):
                with pytest.raises(ValueError, match="no"):
                    await seat.follow()
            source.failure = None
            reader = Reader(room=1)
            with feeds.join(source, "ses", reader.take, head=0, poll_ms=600_000) as third:
                following = asyncio.create_task(third.follow())
                await quiet(source)
                source.commit(1)
                await reader.full.wait()
                following.cancel()

    run(work)


def test_a_feed_that_nobody_follows_reads_no_more() -> None:
    async def work(feeds: SessionFeeds, source: Source) -> None:
        ready = asyncio.Event()
        following = asyncio.create_task(followed(feeds, source, Reader(), ready))
        await ready.wait()
        await quiet(source)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        before = source.readings
        source.commit(1)
        await quiet(source)
        assert source.readings == before

    run(work)
