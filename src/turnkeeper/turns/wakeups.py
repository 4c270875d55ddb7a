"""News inside one process (`Wakeups`): who waits for a topic learns at once that something was committed.

Answers for no news lost between a read and a wait, as long as the watch was begun before the read. Must never keep
anything for a topic that nobody watches, nor more watches than its limit. News from other processes comes here
only if somebody forwards it, which is why every waiter also has a time limit.
"""

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

from turnkeeper.errors import TurnkeeperError

MAX_WATCHES: Final = 10_000


class TooManyWatches(TurnkeeperError):
    """The limit of requests that wait for news has been reached."""

    code = "overloaded"


class Watch:
    """What one waiter has not heard yet. It belongs to the event loop in which it was begun."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def ring(self) -> None:
        """There is news. From any thread."""
        # The loop may have ended, and then nobody waits. Who rings has just committed and must not fail for it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._news.set)

    async def wait(self, *, timeout_ms: int) -> bool:
        """Whether there was news since the last wait, or came within the time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


class LocalWakeups:
    """`Wakeups` for one process. `notify` may be called from any thread.

    `relay` is told every topic as well, if there are other processes to tell.
    """

    def __init__(self, max_watches: int = MAX_WATCHES) -> None:
        self.relay: Callable[[str], None] | None = None
        self._max_watches = max_watches
        self._count = 0
        self._lock = threading.Lock()
        self._watches: dict[str, set[Watch]] = {}

    def notify(self, topic: str) -> None:
        """Something about `topic` was committed here."""
        self.ring(topic)
        relay = self.relay
        if relay is not None:
            relay(topic)

    def ring(self, topic: str) -> None:
        """Something about `topic` was committed, here or by another process: whoever watches it is told."""
        with self._lock:
            watches = tuple(self._watches.get(topic, ()))
        for watch in watches:
            watch.ring()

    @contextmanager
    def watch(self, topic: str) -> Generator[Watch]:
        """A watch on the topic: begin it, then read, then wait. Raises `TooManyWatches`."""
        watch = Watch()
        self._add(topic, watch)
        try:
            yield watch
        finally:
            self._remove(topic, watch)

    @contextmanager
    def also(self, topic: str, watch: Watch) -> Generator[None]:
        """Has a watch rung for this topic as well. Raises `TooManyWatches`."""
        self._add(topic, watch)
        try:
            yield
        finally:
            self._remove(topic, watch)

    async def wait(self, topic: str, *, timeout_ms: int) -> None:
        """Until the topic is notified or the time is up."""
        with self.watch(topic) as watch:
            await watch.wait(timeout_ms=timeout_ms)

    def _add(self, topic: str, watch: Watch) -> None:
        with self._lock:
            if self._count >= self._max_watches:
                raise TooManyWatches("too many requests are waiting for news", hint="Try again in a moment.")
            self._count += 1
            self._watches.setdefault(topic, set()).add(watch)

    def _remove(self, topic: str, watch: Watch) -> None:
        with self._lock:
            self._count -= 1
            watches = self._watches[topic]
            watches.discard(watch)
            if not watches:
                del self._watches[topic]
