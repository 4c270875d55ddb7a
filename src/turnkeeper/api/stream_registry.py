"""Which event streams and long waits are open, how many there may be, and when they must end.

Answers for a bound on streams, in all and per API key, and for a server that stops without waiting for its readers.
"""

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from turnkeeper.api.sse import ClosingReason
from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.wakeups import Watch

MAX_STREAMS: Final = 256
MAX_STREAMS_PER_KEY: Final = 64


class TooManyStreams(TurnkeeperError):
    """The limit of open streams has been reached."""

    code = "too_many_streams"


class StreamRegistry:
    """The open streams of one application, in one event loop."""

    def __init__(self, *, max_streams: int = MAX_STREAMS, max_per_key: int = MAX_STREAMS_PER_KEY) -> None:
        self._max_streams = max_streams
        self._max_per_key = max_per_key
        self._open: Counter[str] = Counter()
        self._waits: set[Watch] = set()
        self._ends: set[asyncio.Future[ClosingReason]] = set()
        self._draining = asyncio.Event()

    @property
    def draining(self) -> asyncio.Event:
        """Set once the server stops: streams then close with `deploy`, long waits answer at once."""
        return self._draining

    @property
    def open_count(self) -> int:
        """How many streams are open."""
        return self._open.total()

    def drain(self) -> None:
        """Ends every stream and long wait. Call it in the event loop, before the server waits for its connections."""
        self._draining.set()
        for watch in tuple(self._waits):
            watch.ring()
        for over in self._ends:
            if not over.done():
                over.set_result("deploy")

    @contextmanager
    def ending(self) -> Generator["asyncio.Future[ClosingReason]"]:
        """Why a stream ends, as soon as somebody knows: set to `deploy` when the server stops."""
        over: asyncio.Future[ClosingReason] = asyncio.get_running_loop().create_future()
        if self._draining.is_set():
            over.set_result("deploy")
        self._ends.add(over)
        try:
            yield over
        finally:
            self._ends.discard(over)

    @contextmanager
    def attach(self, watch: Watch) -> Generator[None]:
        """Has the watch rung when the server stops."""
        self._waits.add(watch)
        try:
            yield
        finally:
            self._waits.discard(watch)

    @contextmanager
    def admit(self, key_id: str, *, key_limit: int | None = None) -> Generator[None]:
        """Counts one stream of the key while it is open.

        `key_limit` is the key's own, in place of the usual one. Raises `TooManyStreams`.
        """
        self._check(key_id, self._max_per_key if key_limit is None else key_limit)
        self._open[key_id] += 1
        try:
            yield
        finally:
            self._open[key_id] -= 1
            if not self._open[key_id]:
                del self._open[key_id]

    def _check(self, key_id: str, key_limit: int) -> None:
        if self._open[key_id] >= key_limit:
            limit = key_limit
        elif self._open.total() >= self._max_streams:
            limit = self._max_streams
        else:
            return
        raise TooManyStreams(
            f"{limit} event streams are open, which is the limit",
            detail={"limit": limit},
            hint="Close a stream, or read several sessions through one.",
        )
