"""Frames of the stdio transport (ledger WIRE-14): `Content-Length` headers, an empty line, that many bytes of UTF-8.

Pure: bytes in, frames out. Must never hold more than one frame of the allowed size.
"""

from typing import Final

from turnkeeper.errors import RemoteProtocolError

MAX_HEADER_BYTES: Final = 4_096
_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length"
_MAX_LENGTH_DIGITS: Final = 12


class FrameBroken(RemoteProtocolError):
    """The peer's bytes are no frames: nothing after them can be read any more."""

    code = "frame_broken"


def render_frame(body: bytes) -> bytes:
    """A body with its header."""
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


class FrameReader:
    """Cuts a stream of bytes into bodies."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._buffer = bytearray()
        self._missing: int | None = None

    def feed(self, chunk: bytes) -> list[bytes]:
        """The bodies that are complete now, in order. Raises `FrameBroken`."""
        self._buffer += chunk
        bodies: list[bytes] = []
        while (body := self._next()) is not None:
            bodies.append(body)
        return bodies

    def _next(self) -> bytes | None:
        if self._missing is None and not self._read_header():
            return None
        if self._missing is None or len(self._buffer) < self._missing:
            return None
        body = bytes(self._buffer[: self._missing])
        del self._buffer[: self._missing]
        self._missing = None
        return body

    def _read_header(self) -> bool:
        end = self._buffer.find(_END, 0, MAX_HEADER_BYTES + len(_END))
        if end < 0:
            if len(self._buffer) > MAX_HEADER_BYTES:
                raise FrameBroken(f"a header has more than {MAX_HEADER_BYTES} bytes")
            return False
        length = frame_length(bytes(self._buffer[:end]))
        if length > self._max_body_bytes:
            raise FrameBroken(f"a frame has {length} bytes, more than {self._max_body_bytes}")
        del self._buffer[: end + len(_END)]
        self._missing = length
        return True


def frame_length(header: bytes) -> int:
    """How many bytes follow a header, the empty line after it left out. Raises `FrameBroken`."""
    lengths: list[bytes] = []
    for line in header.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon:
            raise FrameBroken("a header line has no colon")
        if name.strip().lower() == _LENGTH:
            lengths.append(value.strip())
    if len(lengths) != 1 or not lengths[0].isdigit() or len(lengths[0]) > _MAX_LENGTH_DIGITS:
        raise FrameBroken("a frame does not say once how long it is")
    return int(lengths[0])
