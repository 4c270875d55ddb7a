"""Events as they come, over as many connections as it takes (contract 11).

Answers for every stored event after the start, each once, in order, until the stream is finished. Must never give up
on a server that is away for less than `Retries.outage_ms`, nor hold on to one that is away for longer.

Made from `turnkeeper.client.turn_api.streams` by `tests/unit/client/turn_api_half.py`; change it there.
"""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, closing
from typing import Final

import httpx

from turnkeeper.client.errors import ClientError
from turnkeeper.client.turn_api.answers import read_problem
from turnkeeper.client.turn_api.connection_blocking import Connection, StreamOpened, monotonic_ms, read_bounded
from turnkeeper.client.turn_api.documents import AnswerUnreadable
from turnkeeper.client.turn_api.following import Closing, Follower, Ready, StreamBroken
from turnkeeper.client.turn_api.frames import FrameReader
from turnkeeper.client.turn_api.pauses import sleep
from turnkeeper.client.turn_api.problems import ServerUnreachable
from turnkeeper.client.turn_api.retries import parse_retry_after
from turnkeeper.client.turn_api.views import Event

_GONE_FOR_NOW: Final = frozenset({429, 500, 502, 503, 504})


class EventStream:
    """The events of a session or a turn; iterate over it once.

    `last_sequence` is the number of the last stored event that was handed over: keep it with what you did, and a later
    stream with `after=` goes on behind it.
    """

    def __init__(
        self, connection: Connection, path: str, *, after: int, query: Mapping[str, str], gapless: bool
    ) -> None:
        self._connection = connection
        self._path = path
        self._query = query
        self._follower = Follower(after, gapless=gapless)
        self._failures = 0
        self._holes = 0
        self._away_since_ms: int | None = None
        self._retry_after_ms: int | None = None
        self._finished = False

    @property
    def last_sequence(self) -> int:
        """The last stored event that was handed over or passed by; where a later stream goes on."""
        return self._follower.after

    def __iter__(self) -> Generator[Event, None, None]:
        """Each event. Raises `ApiProblem` (`KeyRefused`, `NotFound`, `Gone`), `ServerUnreachable`, `StreamBroken`."""
        while not self._finished:
            try:
                with self._open() as opened, closing(self._events(opened)) as events:
                    yield from events
            except httpx.TransportError as error:
                self._suffer(ServerUnreachable(f"the stream broke off: {type(error).__name__}"))
            except AnswerUnreadable as error:
                self._suffer(error)
            except StreamBroken as hole:
                self._holes += 1
                if self._holes >= self._connection.retries.max_attempts:
                    raise
                self._suffer(hole)
            if self._failures:
                self._connection.pause(self._failures, self._retry_after_ms)

    def _open(self) -> AbstractContextManager[StreamOpened]:
        return self._connection.open(self._path, self._query, last_event_id=self._follower.after)

    def _events(self, opened: StreamOpened) -> Generator[Event, None, None]:
        self._retry_after_ms = None
        if opened.status != 200:
            self._refused(opened)
            return
        reader = FrameReader()
        for piece in opened.pieces:
            for frame in reader.feed(piece):
                taken = self._follower.take(frame)
                if isinstance(taken, Event):
                    self._failures = self._holes = 0
                    yield taken
                elif isinstance(taken, Closing):
                    self._closed(taken)
                    return
                if isinstance(taken, Event | Ready):
                    self._away_since_ms = None
        self._suffer(ServerUnreachable("the stream broke off"))

    def _closed(self, closing: Closing) -> None:
        self._finished = closing.final
        self._failures = 0
        self._away_since_ms = None
        if not closing.final:
            sleep(closing.retry_ms)

    def _refused(self, opened: StreamOpened) -> None:
        if opened.status == 204:
            self._finished = True
            return
        problem = read_problem(opened.status, opened.headers, read_bounded(opened.pieces))
        if opened.status not in _GONE_FOR_NOW:
            raise problem
        self._retry_after_ms = parse_retry_after(opened.headers.get("retry-after"))
        self._suffer(problem)

    def _suffer(self, error: ClientError) -> None:
        """Counts a failure. Raises it once the server has been away for too long."""
        self._failures += 1
        if self._away_since_ms is None:
            self._away_since_ms = monotonic_ms()
        if monotonic_ms() - self._away_since_ms >= self._connection.retries.outage_ms:
            raise error
