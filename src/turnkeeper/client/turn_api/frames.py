"""Frames of a server-sent event stream, out of pieces cut anywhere (WHATWG HTML 9.2; contract 11).

Pure. A frame counts once its empty line came; half a frame at the end of a connection is none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from turnkeeper.client.turn_api.documents import AnswerUnreadable

MAX_FRAME_BYTES: Final = 16 * 1_048_576
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Frame:
    """One whole frame. `id` is None where it has none; comments and `retry` are not frames."""

    event: str
    data: str
    id: str | None


class FrameReader:
    """Takes bytes as they come, gives frames as they are whole. Raises `AnswerUnreadable` for one without end."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._rest = b""
        self._lines: list[bytes] = []
        self._size = 0
        self._started = False

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """The frames that this piece completes."""
        for line in self._complete_lines(piece):
            if line:
                self._take(line)
                continue
            frame = _frame(self._lines)
            self._lines, self._size = [], 0
            if frame is not None:
                yield frame

    def _take(self, line: bytes) -> None:
        self._size += len(line)
        if self._size > self._max_frame_bytes:
            raise AnswerUnreadable(f"a frame has more than {self._max_frame_bytes} bytes")
        self._lines.append(line)

    def _complete_lines(self, piece: bytes) -> list[bytes]:
        text = self._rest + piece
        if not self._started and text:
            if _BOM.startswith(text[:3]) and len(text) < len(_BOM):
                self._rest = text
                return []
            text, self._started = text.removeprefix(_BOM), True
        # A carriage return at the very end may be half of a line's end.
        held = b"\r" if text.endswith(b"\r") else b""
        lines = text[: len(text) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + held
        if len(self._rest) > self._max_frame_bytes:
            raise AnswerUnreadable(f"a frame has more than {self._max_frame_bytes} bytes")
        return lines


def _frame(lines: list[bytes]) -> Frame | None:
    event, identifier = "message", None
    data: list[str] = []
    for line in lines:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id" and "\0" not in value:
            identifier = value
    return Frame(event, "\n".join(data), identifier) if data else None
