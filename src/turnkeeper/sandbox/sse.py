"""Server-sent events: bytes in any pieces to events, and an event to bytes (the HTML standard, 9.2.6). Pure.

Comments and the fields `id` and `retry` are not kept: nobody reconnects to a model's answer.
"""

import re
from dataclasses import dataclass
from typing import Final

from turnkeeper.errors import TurnkeeperError

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class EventTooLarge(TurnkeeperError):
    """One event is over the cap."""

    code = "event_too_large"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event; `name` is None where the stream gives none."""

    name: str | None
    data: bytes


class SseDecoder:
    """Feed it what arrives; it gives the events that are complete. Holds at most `max_event_bytes`."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._after_return = False
        self._name: str | None = None
        self._data: list[bytes] = []
        self._held_bytes = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that end in this chunk. Raises `EventTooLarge`."""
        if self._after_return:
            chunk = chunk.removeprefix(b"\n")
        self._after_return = chunk.endswith(b"\r")
        *lines, rest = _LINE_END.split(chunk)
        if lines:
            lines[0] = b"".join((*self._line, lines[0]))
            self._line, self._line_bytes = [], 0
        self._line.append(rest)
        self._line_bytes += len(rest)
        events = [event for line in lines if (event := self._take(line)) is not None]
        if self._held_bytes + self._line_bytes > self._max_event_bytes:
            raise EventTooLarge(f"an event is over {self._max_event_bytes} bytes")
        return events

    def _take(self, line: bytes) -> SseEvent | None:
        if not line:
            return self._finish()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._held_bytes += len(value)
            if self._held_bytes > self._max_event_bytes:
                raise EventTooLarge(f"an event is over {self._max_event_bytes} bytes")
        elif field == b"event":
            self._name = value.decode(errors="replace")[:64] or None
        return None

    def _finish(self) -> SseEvent | None:
        name, data = self._name, self._data
        self._name, self._data, self._held_bytes = None, [], 0
        return SseEvent(name, b"\n".join(data)) if data else None


def render_event(name: str | None, data: bytes) -> bytes:
    """An event as bytes. `data` is one line."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + data + b"\n\n"
