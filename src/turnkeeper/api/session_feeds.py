"""One follower of the store for all streams of a session (contract 11).

Answers for the cost of an event that many watch: it is read once, rendered once, and the same bytes go to everybody.
A reader that has to read by itself, because it has just come or because its connection is slow, is told of everything
that came meanwhile, so that no event falls between its own reading and the feed's.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

from turnkeeper.api.event_reads import EventSource
from turnkeeper.api.sse import Framed, framed
from turnkeeper.turns.wakeups import Watch

BATCH_EVENTS: Final = 32
FEEDS_PER_POLL: Final = 100
"""Up to this many feeds look for lost news every `poll_ms`; more of them look less often."""


class FeedSource(Protocol):
    """Where a feed reads events and hears of new ones."""

    @property
    def store(self) -> EventSource: ...

    @property
    def news(self) -> "FeedNews": ...


class FeedNews(Protocol):
    """Where a feed hears that something was committed."""

    def watch(self, topic: str) -> AbstractContextManager[Watch]: ...


class Seat:
    """A reader's place at a feed: either it reads by itself, or it is handed what comes.

    `take` is given one frame after the other and says whether it had room; it must not take the same event twice.
    """

    def __init__(self, take: Callable[[Framed], bool]) -> None:
        self._take = take
        self._handed = False
        self._missed = asyncio.Event()
        self._failure: BaseException | None = None

    def read_alone(self) -> None:
        """Call it before reading: what is committed from now on is in that reading, or `follow` returns at once."""
        self._handed = False
        self._missed.clear()

    async def follow(self) -> None:
        """Takes what comes until something did not fit, or had come before. Raises what the feed's reading raised."""
        if self._failure is None and not self._missed.is_set():
            self._handed = True
            await self._missed.wait()
        if self._failure is not None:
            raise self._failure

    def offer(self, batch: Sequence[Framed]) -> None:
        """Hands over as much as is taken."""
        if self._handed and all(map(self._take, batch)):
            return
        self._handed = False
        self._missed.set()

    def fail(self, failure: BaseException) -> None:
        """There is nothing more to come."""
        self._failure = failure
        self._missed.set()


class SessionFeeds:
    """The feeds of one event loop: one per session that somebody follows, for as long as somebody does."""

    def __init__(self) -> None:
        self._feeds: dict[str, _Feed] = {}

    @contextmanager
    def join(
        self, source: FeedSource, session_id: str, take: Callable[[Framed], bool], *, head: int, poll_ms: int
    ) -> Generator[Seat]:
        """A seat at the session's feed. `head` is the session's last sequence as the reader knows it."""
        feed = self._feeds.get(session_id)
        if feed is None:
            feed = self._feeds[session_id] = _Feed(source, session_id, head, self._pause_ms(poll_ms))
            feed.begin(lambda: self._feeds.pop(session_id, None))
        seat = Seat(take)
        feed.seats.add(seat)
        try:
            yield seat
        finally:
            feed.seats.discard(seat)
            if not feed.seats and self._feeds.get(session_id) is feed:
                del self._feeds[session_id]
                feed.end()

    def _pause_ms(self, poll_ms: int) -> Callable[[], int]:
        return lambda: poll_ms * max(1, len(self._feeds) // FEEDS_PER_POLL)


class _Feed:
    def __init__(self, source: FeedSource, session_id: str, head: int, pause_ms: Callable[[], int]) -> None:
        self.seats: set[Seat] = set()
        self._source = source
        self._session_id = session_id
        self._position = head
        self._pause_ms = pause_ms
        self._task: asyncio.Task[None] | None = None

    def begin(self, failed: Callable[[], object]) -> None:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda task: self._ended(task, failed))

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        with self._source.news.watch(self._session_id) as watch:
            while True:
                events = await self._source.store.events(self._session_id, after=self._position, limit=BATCH_EVENTS)
                if events:
                    self._position = events[-1].sequence
                    self._hand_out([framed(event) for event in events])
                if len(events) < BATCH_EVENTS:
                    await watch.wait(timeout_ms=self._pause_ms())

    def _hand_out(self, batch: Sequence[Framed]) -> None:
        for seat in self.seats:
            seat.offer(batch)

    def _ended(self, task: asyncio.Task[None], failed: Callable[[], object]) -> None:
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None:
            failed()
            for seat in self.seats:
                seat.fail(failure)
