"""The bytes of an event stream and a bounded buffer before the wire (contract 11).

Answers for frames that one stored text can never split, and for memory that a slow reader cannot fill.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import orjson

from turnkeeper.events.envelope import Event, PassingEvent, render_event, render_passing

RETRY_MS: Final = 1_000
MAX_BUFFERED_FRAMES: Final = 1_000
MAX_BUFFERED_BYTES: Final = 1_048_576
HEARTBEAT: Final = b": heartbeat\n\n"
CUT_SHORT: Final = b": cut short, come back\n\n"
"""In place of `stream.closing`, whose reasons are all intended: events could not be read any more."""
FIRST_LINE: Final = b"retry: %d\n\n" % RETRY_MS

ClosingReason: TypeAlias = Literal[
    "turn_ended", "session_closed", "session_deleted", "max_age", "slow_consumer", "deploy", "unauthorized"
]

_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


@dataclass(frozen=True, slots=True)
class Framed:
    """A stored event with its frame, which is the same for every reader."""

    event: Event
    frame: bytes


def framed(event: Event) -> Framed:
    """The event with its frame."""
    return Framed(event, event_frame(event))


def event_frame(event: Event) -> bytes:
    """A stored event: `id` is its sequence, `data` the envelope on one line."""
    # JSON has line ends only between tokens, where a space means the same.
    data = render_event(event).translate(_LINE_ENDS)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.sequence, event.type.encode(), data)


def passing_frame(passing: PassingEvent) -> bytes:
    """An event that is not stored. It has no id, so that it moves no `Last-Event-ID`."""
    data = render_passing(passing).translate(_LINE_ENDS)
    return b"event: %s\ndata: %s\n\n" % (passing.event.type.encode(), data)


def ready_frame(*, after: int, head_sequence: int, oldest_sequence: int, deltas: str) -> bytes:
    """The first frame: where the stream begins. It has no id, so that it moves no `Last-Event-ID`."""
    return _frame(
        b"stream.ready",
        {"after": after, "head_sequence": head_sequence, "oldest_sequence": oldest_sequence, "deltas": deltas},
    )


def closing_frame(reason: ClosingReason, *, after: int) -> bytes:
    """The last frame: why the server closes, when to come back, and where to go on."""
    return _frame(b"stream.closing", {"reason": reason, "retry_ms": RETRY_MS, "after": after})


def _frame(name: bytes, data: dict[str, object]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name, orjson.dumps(data))


class FrameBuffer:
    """Frames between the store and one connection: at most 1,000 frames or 1 MiB, whichever comes first."""

    def __init__(self, max_frames: int = MAX_BUFFERED_FRAMES, max_bytes: int = MAX_BUFFERED_BYTES) -> None:
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._closed = False
        self._taken = asyncio.Event()
        self._filled: asyncio.Future[bool] | None = None

    async def put(self, frame: bytes, *, timeout_ms: int) -> bool:
        """Takes the frame as soon as it fits. `False`: it did not fit within the time."""
        # A deadline costs more than all the rest, and hardly any frame needs one.
        if not self._fits(frame):
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    while not self._fits(frame):
                        await self._room()
            except TimeoutError:
                return False
        self._append(frame)
        return True

    @property
    def waiting(self) -> int:
        """How many frames have not been taken yet."""
        return len(self._frames)

    def offer(self, frame: bytes) -> bool:
        """Takes the frame if it fits now; whether it did."""
        fits = self._fits(frame)
        if fits:
            self._append(frame)
        return fits

    def close(self, last: bytes) -> None:
        """Takes one last frame, whether it fits or not."""
        self._closed = True
        self._append(last)

    async def get(self, *, timeout_ms: int) -> bytes | None:
        """The next frame; a heartbeat when nothing came within the time; `None` at the end."""
        if not self._frames and not self._closed and not await self._filling(timeout_ms):
            return HEARTBEAT
        if not self._frames:
            return None
        taken = self._frames.popleft()
        self._bytes -= len(taken)
        self._taken.set()
        return taken

    async def _filling(self, timeout_ms: int) -> bool:
        loop = asyncio.get_running_loop()
        filled = self._filled = loop.create_future()
        # Every reader of every event waits here; `asyncio.timeout` would be a sixth of what the event costs.
        timer = loop.call_later(timeout_ms / 1000, _settle, filled, False)
        try:
            return await filled
        finally:
            timer.cancel()

    def _fits(self, frame: bytes) -> bool:
        if not self._frames:
            return not self._closed
        return not self._closed and len(self._frames) < self._max_frames and self._bytes + len(frame) <= self._max_bytes

    def _append(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._bytes += len(frame)
        if self._filled is not None:
            _settle(self._filled, True)

    async def _room(self) -> None:
        self._taken.clear()
        await self._taken.wait()


def _settle(future: asyncio.Future[bool], outcome: bool) -> None:
    if not future.done():
        future.set_result(outcome)
