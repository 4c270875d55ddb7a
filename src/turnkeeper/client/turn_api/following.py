"""Where a reader is in a session's events, over any number of connections (contract 10 and 11).

Pure. Answers for each stored event once and in order: a repeat is dropped, a hole is found. Must never move past an
event that was not handed over.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from turnkeeper.client.errors import ClientError
from turnkeeper.client.turn_api.documents import AnswerUnreadable, Json, parse_document
from turnkeeper.client.turn_api.frames import Frame
from turnkeeper.client.turn_api.views import Event

ENDINGS: Final = frozenset({"turn_ended", "session_closed", "session_deleted"})
DEFAULT_RETRY_MS: Final = 1_000
MAX_RETRY_MS: Final = 60_000


class StreamBroken(ClientError):
    """Stored events did not come although they were asked for again and again."""

    code = "stream_broken"


@dataclass(frozen=True, slots=True)
class Closing:
    """The server closes the stream. `final`: there is nothing after it."""

    reason: str
    retry_ms: int

    @property
    def final(self) -> bool:
        """Whether the stream is finished rather than interrupted."""
        return self.reason in ENDINGS


@dataclass(frozen=True, slots=True)
class Ready:
    """The server begins the stream."""


Taken: TypeAlias = Event | Closing | Ready | None


class Follower:
    """The place in one session's events. `gapless`: all of them are asked for, so their numbers have no holes."""

    def __init__(self, after: int, *, gapless: bool) -> None:
        self.after = after
        self._gapless = gapless

    def take(self, frame: Frame) -> Taken:
        """What the frame is; None for what was there before. Raises `StreamBroken` for a hole, `AnswerUnreadable`."""
        members = parse_document(frame.data)
        if frame.event == "stream.ready":
            return self._begin(members)
        if frame.event == "stream.closing":
            return self._close(members)
        if frame.event.startswith("stream."):
            return None
        event = Event(members)
        sequence = event.sequence
        if sequence is None:
            return event
        if sequence <= self.after:
            return None
        if self._gapless and sequence != self.after + 1:
            raise StreamBroken(f"event {self.after + 1} is missing before {sequence}")
        self.after = sequence
        return event

    def _begin(self, members: Json) -> Ready:
        # Only a reader that begins at 0 is let in before the oldest event that is still kept.
        oldest = _number(members.get("oldest_sequence"))
        if self.after == 0 and oldest is not None:
            self.after = max(0, oldest - 1)
        return Ready()

    def _close(self, members: Json) -> Closing:
        # With a filter the server has looked further than what it had to send.
        passed = _number(members.get("after"))
        if passed is not None and not self._gapless:
            self.after = max(self.after, passed)
        reason = members.get("reason")
        if not isinstance(reason, str):
            raise AnswerUnreadable("a stream was closed without a reason")
        retry_ms = _number(members.get("retry_ms"))
        return Closing(reason, min(DEFAULT_RETRY_MS if retry_ms is None else retry_ms, MAX_RETRY_MS))


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
