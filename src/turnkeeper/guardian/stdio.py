"""The Guardian's stdio door (CORE-WIRE-14): frames in, frames out, one process for one peer.

Answers for one answer per frame, in the order of the frames, and for a bounded read: a frame that is too large is
skipped within bounds and answered, so that the peer can go on. What is no frame ends the door, for nothing after it can
be read. Must never write anything but frames.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from turnkeeper.acs import AcsError, AcsErrorCode
from turnkeeper.acs.framing import MAX_HEADER_BYTES, FrameBroken, frame_length, render_frame
from turnkeeper.guardian.answers import render_error
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.pipeline import Guardian

MAX_SKIPPED_BYTES: Final = 64 * 1024 * 1024
_SKIP_CHUNK: Final = 65_536
_END: Final = b"\r\n\r\n"

Write: TypeAlias = Callable[[bytes], Awaitable[None]]


class _Oversized(Exception):
    """A frame was skipped; the next one can be read."""


async def serve_frames(
    guardian: Guardian, door: Door, reader: asyncio.StreamReader, write: Write, *, max_body_bytes: int
) -> None:
    """Answers frames until the peer's input ends between two of them.

    Raises `FrameBroken` for input that is no frame or ends inside one, once the peer was told, and what `write` raises.
    """
    while True:
        try:
            body = await read_frame(reader, max_body_bytes)
        except _Oversized:
            await write(render_frame(_error("too_large", f"the frame has more than {max_body_bytes} bytes")))
            continue
        except FrameBroken as broken:
            await write(render_frame(_error("frame_broken", broken.message)))
            raise
        if body is None:
            return
        await write(render_frame(await guardian.answer(body, door)))


async def read_frame(reader: asyncio.StreamReader, max_body_bytes: int) -> bytes | None:
    """The next frame's body; None where the input ends before it. Raises `FrameBroken`."""
    try:
        header = await reader.readuntil(_END)
    except asyncio.IncompleteReadError as ended:
        if ended.partial:
            raise FrameBroken("the input ends inside a header") from ended
        return None
    except asyncio.LimitOverrunError as overrun:
        raise FrameBroken(f"a header has more than {MAX_HEADER_BYTES} bytes") from overrun
    if len(header) > MAX_HEADER_BYTES + len(_END):
        raise FrameBroken(f"a header has more than {MAX_HEADER_BYTES} bytes")
    length = frame_length(header.removesuffix(_END))
    if length > max_body_bytes:
        await _skip(reader, length)
        raise _Oversized
    try:
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as ended:
        raise FrameBroken("the input ends inside a frame") from ended


async def _skip(reader: asyncio.StreamReader, length: int) -> None:
    if length > MAX_SKIPPED_BYTES:
        raise FrameBroken(f"a frame has {length} bytes")
    left = length
    while left > 0:
        skipped = await reader.read(min(left, _SKIP_CHUNK))
        if not skipped:
            raise FrameBroken("the input ends inside a frame")
        left -= len(skipped)


def _error(reason: str, message: str) -> bytes:
    return render_error(AcsError(AcsErrorCode.INVALID_REQUEST, reason, message), None, None)
